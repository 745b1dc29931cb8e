package seglog.spark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The topics of a remote as tables for SQL. It only reads.
 *
 * <p>{@code acme.orders} is a topic, {@code acme.orders.branch_fix} its branch, {@code acme.orders.tag_audit} its state
 * at a tag, {@code acme.orders.changes} its feed of changes, and {@code acme.orders.history} what the topic has beside its
 * records. The settings of the catalog are {@code url}, and options of loads, which each of its tables has.
 */
public final class SeglogCatalog implements TableCatalog {
    private static final String BRANCH = "branch_";
    private static final String TAG = "tag_";
    private static final String CHANGES = "changes";
    private static final Set<String> LISTINGS = Set.of("history", "branches", "tags", "segments");

    /** Errors of the planner that say that there is no such table. */
    private static final Set<String> ABSENT = Set.of("NoSuchTopic", "NoSuchBranch");

    private String name;
    private Map<String, String> settings;

    @Override
    public void initialize(String given, CaseInsensitiveStringMap options) {
        name = given;
        settings = new HashMap<>(options); // names in lower case, as Python gets them
        String url = settings.remove("url");
        if (url == null) {
            throw SparkErrors.shown(new PlannerFailure(
                    "InvalidOption", "option url: it is required", "set spark.sql.catalog." + name + ".url"));
        }
        settings.put(Question.PATH, url);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length > 0) {
            throw new NoSuchNamespaceException(namespace);
        }
        return Listing.of(name, "topics", options("*")).texts().stream()
                .map(topic -> Identifier.of(namespace, topic))
                .toArray(Identifier[]::new);
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
        return found(table, Map.of());
    }

    /** A number is an LSN, any other text a tag. */
    @Override
    public Table loadTable(Identifier table, String version) throws NoSuchTableException {
        boolean isTag = !version.startsWith(Question.TAG) && !version.chars().allMatch(Character::isDigit);
        return found(table, Map.of(Question.VERSION, isTag ? Question.TAG + version : version));
    }

    @Override
    public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
        return found(table, Map.of(Question.TIME, Long.toString(Math.floorDiv(micros, 1000))));
    }

    @Override
    public Table loadTable(Identifier table, Set<TableWritePrivilege> privileges) {
        throw refused();
    }

    private Table found(Identifier table, Map<String, String> version) throws NoSuchTableException {
        String[] topic = table.namespace();
        try {
            if (topic.length == 0) {
                return records(table, options(table.name()), version);
            }
            if (topic.length == 1) {
                return beside(table, topic[0], version);
            }
        } catch (Exception error) { // Spark's errors of the analysis are no RuntimeExceptions
            if (error.getCause() instanceof PlannerFailure failure && ABSENT.contains(failure.type())) {
                throw new NoSuchTableException(table);
            }
            throw error;
        }
        throw new NoSuchTableException(table);
    }

    /** Return a branch, a tagged state or a listing of a topic. */
    private Table beside(Identifier table, String topic, Map<String, String> version) throws NoSuchTableException {
        String part = table.name();
        String listing = part.toLowerCase(Locale.ROOT);
        if (LISTINGS.contains(listing)) {
            Map<String, String> options = options(topic);
            options.putAll(version);
            return Listing.of(shown(table), listing, options);
        }
        if (listing.equals(CHANGES)) {
            Map<String, String> options = options(topic);
            options.put(Question.FEED, "true");
            return records(table, options, version);
        }
        if (part.startsWith(BRANCH)) {
            return records(table, options(topic + "@" + part.substring(BRANCH.length())), version);
        }
        if (part.startsWith(TAG) && version.isEmpty()) {
            String tag = Question.TAG + part.substring(TAG.length());
            return records(table, options(topic), Map.of(Question.VERSION, tag));
        }
        throw new NoSuchTableException(table);
    }

    private Table records(Identifier table, Map<String, String> options, Map<String, String> version) {
        options.putAll(version);
        return new CatalogTable(shown(table), Question.pinned(options), !version.isEmpty());
    }

    private Map<String, String> options(String topic) {
        Map<String, String> options = new HashMap<>(settings);
        options.put(Question.TOPIC, topic);
        return options;
    }

    private String shown(Identifier table) {
        return name + "." + table;
    }

    @Override
    @SuppressWarnings("deprecation")
    public Table createTable(
            Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
        throw refused();
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
        throw refused();
    }

    @Override
    public boolean dropTable(Identifier table) {
        throw refused();
    }

    @Override
    public boolean purgeTable(Identifier table) {
        throw refused();
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw refused();
    }

    static RuntimeException refused() {
        return SparkErrors.shown(new PlannerFailure(
                "ReadOnly",
                "a catalog of seglog only reads",
                "append with write.format(\"seglog\"), and change topics with the command seglog"));
    }
}
