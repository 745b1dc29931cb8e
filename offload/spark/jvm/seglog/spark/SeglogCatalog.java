package seglog.spark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import seglog.spark.CatalogTable.Version;

/**
 * The topics of a remote as tables for SQL, which statements read and append to.
 *
 * <p>{@code acme.orders} is a topic, {@code acme.orders.branch_fix} its branch, {@code acme.orders.tag_audit} its state
 * at a tag, {@code acme.orders.changes} its feed of changes, and {@code acme.orders.history} what the topic has beside its
 * records. The settings of the catalog are {@code url}, and options of loads, which each of its tables has. Those that
 * choose records or columns leave out the feed.
 *
 * <p>With the setting {@code tenants=true}, the url is what the remotes of tenants have in common. Then each tenant is
 * a namespace, and its tables are those of a catalog of its own: {@code acme.globex.orders.branch_fix}.
 */
public final class SeglogCatalog implements TableCatalog, SupportsNamespaces {
    private static final String BRANCH = "branch_";
    private static final String TAG = "tag_";
    private static final String CHANGES = "changes";
    private static final String TENANTS = "tenants";

    /** The names of tenants (TENANT-1), so that no name leads out of the url. */
    private static final Pattern TENANT = Pattern.compile("[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?");

    /** What begins seglog's own keys (TENANT-3). */
    private static final Set<String> RESERVED =
            Set.of("cold", "doctor", "gc", "oplog", "pins", "refs", "tags", "tenants", "tmp");

    private static final Set<String> LISTINGS = Set.of("history", "branches", "tags", "segments");

    /** Errors of the planner that say that there is no such table. */
    private static final Set<String> ABSENT = Set.of("NoSuchTopic", "NoSuchBranch");

    private String name;
    private Map<String, String> settings;
    private boolean hasTenants;

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
        String tenants = settings.getOrDefault(TENANTS, "false").toLowerCase(Locale.ROOT);
        if (!Set.of("true", "false").contains(tenants)) {
            throw SparkErrors.shown(new PlannerFailure(
                    "InvalidOption", "option tenants: '" + tenants + "' is neither true nor false", null));
        }
        settings.remove(TENANTS);
        hasTenants = tenants.equals("true");
        if (settings.containsKey(Question.FEED)) {
            throw Question.refused("readChangeFeed", "the table " + CHANGES + " of a topic is its feed");
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length != (hasTenants ? 1 : 0) || !isTenant(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
        return Listing.of(name, "topics", options(namespace, "*")).texts().stream()
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

    /** Return a table to append to. */
    @Override
    public Table loadTable(Identifier table, Set<TableWritePrivilege> privileges) throws NoSuchTableException {
        if (!privileges.equals(Set.of(TableWritePrivilege.INSERT))) {
            throw refused();
        }
        Table found = found(table, Map.of());
        if (found instanceof Listing) {
            throw refused(shown(table) + " lists what a topic has", "insert into the topic, or into a branch of it");
        }
        return found;
    }

    private Table found(Identifier table, Map<String, String> version) throws NoSuchTableException {
        String[] names = table.namespace();
        int depth = names.length - (hasTenants ? 1 : 0);
        try {
            if (depth == 0 && isTenant(names)) {
                return records(table, options(names, table.name()), version);
            }
            if (depth == 1 && isTenant(names)) {
                return beside(table, names[names.length - 1], version);
            }
        } catch (Exception error) { // Spark's errors of the analysis are no RuntimeExceptions
            if (error.getCause() instanceof PlannerFailure failure && ABSENT.contains(failure.type())) {
                throw new NoSuchTableException(table);
            }
            throw error;
        }
        throw new NoSuchTableException(table);
    }

    /** Tell whether the names begin with that of a tenant, if this catalog has tenants. */
    private boolean isTenant(String[] names) {
        return !hasTenants || TENANT.matcher(names[0]).matches() && !RESERVED.contains(names[0]);
    }

    /** Return a branch, a tagged state or a listing of a topic. */
    private Table beside(Identifier table, String topic, Map<String, String> version) throws NoSuchTableException {
        String part = table.name();
        String listing = part.toLowerCase(Locale.ROOT);
        Map<String, String> options = options(table.namespace(), topic);
        if (LISTINGS.contains(listing)) {
            options.putAll(version);
            return Listing.of(shown(table), listing, options);
        }
        if (listing.equals(CHANGES)) {
            options.keySet().removeAll(Question.NOT_OF_FEEDS);
            options.put(Question.FEED, "true");
            return records(table, options, version);
        }
        if (part.startsWith(BRANCH)) {
            options.put(Question.TOPIC, topic + "@" + part.substring(BRANCH.length()));
            return records(table, options, version);
        }
        if (part.startsWith(TAG) && version.isEmpty()) {
            options.put(Question.VERSION, Question.TAG + part.substring(TAG.length()));
            return new CatalogTable(shown(table), Question.pinned(options), Version.TAG_TABLE);
        }
        throw new NoSuchTableException(table);
    }

    private Table records(Identifier table, Map<String, String> options, Map<String, String> version) {
        options.putAll(version);
        Version said = version.isEmpty() ? Version.NEWEST : Version.STATEMENT;
        return new CatalogTable(shown(table), Question.pinned(options), said);
    }

    /** Return the options of a table of this topic. The first of the names is the tenant. */
    private Map<String, String> options(String[] names, String topic) {
        Map<String, String> options = new HashMap<>(settings);
        options.put(Question.TOPIC, topic);
        if (hasTenants) {
            options.merge(Question.PATH, names[0], (url, tenant) -> url.replaceAll("/+$", "") + "/" + tenant);
        }
        return options;
    }

    private String shown(Identifier table) {
        return name + "." + table;
    }

    @Override
    public String[][] listNamespaces() {
        if (!hasTenants) {
            return new String[0][];
        }
        Map<String, String> options = new HashMap<>(settings);
        options.put(Question.TOPIC, "*");
        return Listing.of(name, TENANTS, options).texts().stream()
                .map(tenant -> new String[] {tenant})
                .toArray(String[][]::new);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        loadNamespaceMetadata(namespace);
        return namespace.length == 0 ? listNamespaces() : new String[0][];
    }

    /** A tenant is there if it has a topic, and a topic is a namespace of its branches, tags and listings. */
    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        int depth = namespace.length - (hasTenants ? 1 : 0);
        if (namespace.length > 0) {
            String topic = depth == 0 ? "*" : namespace[namespace.length - 1];
            boolean isNamed = isTenant(namespace) && depth <= 1;
            if (!isNamed || Listing.of(name, "topics", options(namespace, topic)).texts().isEmpty()) {
                throw new NoSuchNamespaceException(namespace);
            }
        }
        return Map.of();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
        throw refused();
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw refused();
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw refused();
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
        return refused(
                "a catalog of seglog reads and appends", "append with INSERT INTO; the command seglog changes topics");
    }

    static RuntimeException refused(String reason, String hint) {
        return SparkErrors.shown(new PlannerFailure("ReadOnly", reason, hint));
    }
}
