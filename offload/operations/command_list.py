"""The commands of `seglog`, with their help and their parameters. Written by `make docs`."""

from __future__ import annotations

from offload.operations.listed_command import ListedCommand, ListedParameter

VERSION = '0.1.0'

COMMANDS = {
    'demo': ListedCommand(
        'demo',
        'Show on a text what seglog does. Each command comes with what it prints. It takes seconds, and needs no Java.\n'
        '\n'
        'The demo appends the text, offloads it to a directory, drops the local copy, and reads it back. Then it deletes half\n'
        'by mistake, finds the moment, restores the state before it as a branch, and takes the mistake back. If PySpark and\n'
        'Java are there, it counts both states in Spark, which takes up to a minute more. Its data stays for you to look\n'
        'into, and the next demo begins anew. A directory that holds anything else is refused.\n'
        'Example: seglog demo /var/log/dpkg.log',
        (
            ListedParameter('file', 'path', 'A text of yours. By default the demo makes one up.', ()),
            ListedParameter('directory', 'path', 'Where the demo keeps its data.', ('--directory',), metavar='DIR', shown_default='demo-data'),
        ),
        'offload.cli.start',
        'everyday',
        (),
    ),
    'init': ListedCommand(
        'init',
        'Make a data directory. Its settings are in seglog.toml.\n'
        '\n'
        'One LIST tries the remote. If the remote does not answer within 10 seconds, or refuses, the command says why, and\n'
        'makes the directory all the same. It also says what to do if the remote has topics already. `seglog doctor` checks\n'
        'more. Example: seglog -C data init --remote s3://my-bucket/acme\n'
        '\n'
        'With --from, the new directory follows each topic and branch of the remote, with its configuration. The first append\n'
        'to a topic, or `takeover`, makes this directory its writer. A remote without topics is refused, and so is a\n'
        'directory that is not empty. After a failure, repeat the command: it continues.',
        (
            ListedParameter('remote', 'str', 'Where sealed segments go: s3://bucket/prefix or file:///path.', ('--remote',)),
            ListedParameter('source', 'str', 'Follow this remote, which has topics already.', ('--from',), metavar='URL'),
            ListedParameter('role_arn', 'str', 'The IAM role for the remote, here and in [tenant] of the new seglog.toml.', ('--role-arn',), metavar='ARN'),
        ),
        'offload.cli.start',
        'everyday',
        (),
    ),
    'append': ListedCommand(
        'append',
        'Append lines of a file or of standard input. The command prints their seqs.\n'
        '\n'
        'No byte changes: `seglog append t FILE` and `seglog read t` give FILE again, whatever its line ends.\n'
        'With --follow, the command begins with the start of FILE, and later goes on where it ended, also after a kill.\n'
        'Example: seglog append access /var/log/nginx/access.log --tag web1\n'
        'Example: seglog append access --follow /var/log/nginx/access.log --state /var/lib/seglog/access.place',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('file', 'path', 'The file to append; standard input without it.', (), shown_default='-'),
            ListedParameter('input_format', 'choice', 'lines: a record a line, byte-exact. jsonl: objects with value, tag, node.', ('--format',), default='lines', choices=('lines', 'jsonl')),
            ListedParameter('tag', 'str', 'A tag for the records, to delete or read them by.', ('--tag',)),
            ListedParameter('node', 'str', 'The origin of the records.', ('--node',)),
            ListedParameter('durability', 'str', "fsync, disk or memory, instead of the topic's own. Not ephemeral: this process ends.", ('--durability',)),
            ListedParameter('skip_lines', 'int', 'Leave out so many lines at the start, to continue after an error or Ctrl-C.', ('--skip-lines',), default=0, least=0),
            ListedParameter('keep_times', 'bool', 'With jsonl: the records get the ts_ms of their lines, which ascend.', ('--keep-times',), default=False),
            ListedParameter('follow', 'bool', 'Wait for more lines of FILE without end, over its rotations. Each line is there once.', ('--follow',), default=False),
            ListedParameter('state', 'path', 'With --follow: the file for the place in FILE.', ('--state',), shown_default='FILE.seglog'),
        ),
        'offload.cli.append',
        'everyday',
        (),
    ),
    'read': ListedCommand(
        'read',
        'Print records, byte for byte. Each one is a line.\n'
        '\n'
        'Without --from, the output begins with the first live record. If retention evicted records of the range, a line on\n'
        'standard error names them. With --json, an object with gap_from and gap_to does.\n'
        'With --json, a record is an object with seq, ts_ms, tag, node, and value (value_base64 if it is not UTF-8).\n'
        'The index leaves out parts of the remote that have no record of the time or the tag. If google-re2 is not installed,\n'
        '--grep takes very long for some patterns, such as (a+)+$.\n'
        'Examples: seglog read orders --from 100 --limit 10; seglog read orders --at head~1; seglog read orders --tag "web*"\n'
        '--since "2 hours ago" --grep "time(d )?out"',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('start', 'int', 'The first seq.', ('--from',)),
            ListedParameter('end', 'int', 'The last seq.', ('--to',)),
            ListedParameter('since', 'str', 'Only records of this time or later, such as 2026-11-21T09:30Z.', ('--since',), names='time'),
            ListedParameter('until', 'str', 'Only records of this time or earlier.', ('--until',), names='time'),
            ListedParameter('tag', 'str', 'Only records with this tag; TEXT* means all tags that begin with TEXT.', ('--tag',)),
            ListedParameter('grep', 'str', 'Only records with bytes that this regular expression matches.', ('--grep',), metavar='PATTERN'),
            ListedParameter('fixed', 'bool', 'With --grep: PATTERN is plain text.', ('-F', '--fixed'), default=False),
            ListedParameter('stats', 'bool', 'At the end, say how many chunks were read, and how many the index skipped.', ('--stats',), default=False),
            ListedParameter('branch', 'str', 'The branch; the same as TOPIC@BRANCH.', ('--branch',), names='branch'),
            ListedParameter('at', 'str', 'As it was then: seq:N, lsn:N, head, head~N, or a time.', ('--at',), names='target'),
            ListedParameter('limit', 'int', 'At most so many records.', ('--limit',), least=1),
            ListedParameter('follow', 'bool', 'Then wait for more, and write each record as it comes.', ('--follow',), default=False),
            ListedParameter('wait', 'float', 'With --follow: end after so many seconds without one.', ('--wait',), least=0),
        ),
        'offload.operations.read',
        'everyday',
        ('cat',),
    ),
    'tail': ListedCommand(
        'tail',
        'Print the last records of a topic. Example: seglog tail orders -n 3 -f',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('count', 'int', 'At most so many records.', ('-n', '--count'), default=10, least=1),
            ListedParameter('follow', 'bool', 'Then wait for more, and write each record as it comes.', ('-f', '--follow'), default=False),
            ListedParameter('wait', 'float', 'With --follow: end after so many seconds without one.', ('--wait',), least=0),
        ),
        'offload.operations.read',
        'everyday',
        (),
    ),
    'delete': ListedCommand(
        'delete',
        'Delete records by seq, time, tag or content. `read` shows the same records with the same conditions. Readers no\n'
        'longer see them.\n'
        '\n'
        'Try it with `read`, then say `delete`: seglog read orders --since 14:02 --until 14:20 --tag "web*".\n'
        'All of the records go, or none after a crash. With a remote, the delete becomes a commit: at once, or with the next\n'
        'offload if older records wait for it. `seglog undo` brings the records back: a commit as `lsn:N`, and a delete\n'
        'without one as `delete:N`. Without a remote this works as long as the segments of the records are there.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('start', 'int', 'The first seq to delete.', ('--from',), least=1),
            ListedParameter('end', 'int', 'The last seq to delete.', ('--to',), least=1),
            ListedParameter('before', 'int', 'Delete the records below this seq.', ('--before',)),
            ListedParameter('since', 'str', 'Only records of this time or later, such as 2026-11-21T09:30Z.', ('--since',), names='time'),
            ListedParameter('until', 'str', 'Only records of this time or earlier.', ('--until',), names='time'),
            ListedParameter('tag', 'str', 'Only records with this tag; TEXT* means all tags that begin with TEXT.', ('--tag',)),
            ListedParameter('grep', 'str', 'Only records with bytes that this regular expression matches.', ('--grep',), metavar='PATTERN'),
            ListedParameter('fixed', 'bool', 'With --grep: PATTERN is plain text.', ('-F', '--fixed'), default=False),
            ListedParameter('seqs', 'str', 'Only these seqs, such as 17,4711-4720.', ('--seqs',), metavar='SEQS'),
            ListedParameter('epoch', 'int', 'The epoch that the seqs are of. Else, delete nothing.', ('--epoch',)),
            ListedParameter('preview', 'str', 'The `preview` of a dry run: delete just its records, or none.', ('--preview',), metavar='PREVIEW'),
            ListedParameter('message', 'str', 'Why. The commit or the oplog keeps it.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.removal',
        'everyday',
        (),
    ),
    'evict': ListedCommand(
        'evict',
        'Evict the oldest records of a topic. It evicts them in the remote, too. A reader that starts below gets a gap.\n'
        '\n'
        'Retention (`seglog topic set --ttl`, caps) frees the local disk only. The remote keeps those records, and `read\n'
        '--at` shows them. `evict` removes them from the remote as well, with a commit. Within the window, `seglog undo TOPIC\n'
        'lsn:N` brings them back. After the window, `seglog gc` deletes the objects. Example: seglog evict access\n'
        '--older-than 365d',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('before', 'int', 'Evict the records below this seq.', ('--before',), least=1),
            ListedParameter('older', 'str', 'Evict the records that are older, such as 90d.', ('--older-than',)),
            ListedParameter('message', 'str', 'Why. The commit or the oplog keeps it.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.removal',
        'more',
        (),
    ),
    'truncate': ListedCommand(
        'truncate',
        'Remove the records from a seq on. Later appends use their seqs again.\n'
        '\n'
        'If the remote has any of the records, the command first offloads all of them. The truncation is then a commit. As\n'
        'long as no append uses the seqs again, `seglog undo TOPIC lsn:N` brings the records back. Later, `seglog restore\n'
        'TOPIC --to head~1 --as NAME` makes a branch of the state before it. If only this directory has the records, there is\n'
        'no way back. Example: seglog truncate orders --from 4711 --yes',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('start', 'int', 'The first seq to remove.', ('--from',), is_required=True),
            ListedParameter('message', 'str', 'Why. The commit or the oplog keeps it.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.removal',
        'more',
        (),
    ),
    'seal': ListedCommand(
        'seal',
        'Seal the newest segment. Then all records so far can be offloaded.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
        ),
        'offload.operations.offload',
        'operate',
        (),
    ),
    'offload': ListedCommand(
        'offload',
        'Send sealed segments to the remote. A run makes one commit, and sends the deletes that came after them.\n'
        '\n'
        'After a failure, repeat the command: it continues where it stopped. The unsealed tail stays, and `seglog seal` seals\n'
        'it.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), names='topic'),
            ListedParameter('every', 'bool', 'Every topic of this data directory.', ('--all',), default=False),
            ListedParameter('up_to', 'int', 'Only segments that end at this seq or before.', ('--up-to',)),
            ListedParameter('drop_hot', 'bool', 'Delete the hot copy now, after reading the remote one back, instead of after the lag.', ('--drop-hot',), default=False),
            ListedParameter('dry_run', 'bool', 'Only show how much would be sent.', ('--dry-run',), default=False),
        ),
        'offload.operations.offload',
        'operate',
        (),
    ),
    'compact': ListedCommand(
        'compact',
        'Merge small objects in the remote, with a commit. Frequent offloads leave them. No past state changes.\n'
        '\n'
        'With --erase, rewrite each object that holds deleted records without them. GC deletes the old object when the window\n'
        'has passed. `log` shows until when.\n'
        '\n'
        'The settings merge_below_bytes and merge_count say which objects are small, and how many of them make a merge.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), names='topic'),
            ListedParameter('every', 'bool', 'Every topic of this data directory.', ('--all',), default=False),
            ListedParameter('erase', 'bool', 'Rewrite the objects that hold deleted records instead.', ('--erase',), default=False),
            ListedParameter('message', 'str', 'With --erase: why. The commit keeps it.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'With --erase: show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'With --erase: do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.offload',
        'more',
        (),
    ),
    'gc': ListedCommand(
        'gc',
        'Collect garbage in the remote. It takes two runs, a grace period apart.\n'
        '\n'
        'A run deletes the objects that an earlier run planned, if nothing needs them still. It then plans the objects that\n'
        'nothing needs now. Branches, tags, pins and the window of each topic keep states, and the report names them. If\n'
        'damage may hide a need, GC leaves the volume alone and ends with exit code 5.\n'
        '\n'
        "If this machine's clock is more than a minute off the store's, the run changes nothing and ends with exit code 1.",
        (
            ListedParameter('dry_run', 'bool', 'Show the plan, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('retain', 'str', "Keep so much of every topic's past, whatever its own window is: 7d, 12h, 0.", ('--retain',)),
            ListedParameter('grace', 'str', 'Carry out plans of this age, instead of gc_grace_s: 24h; 0 for all.', ('--grace',)),
        ),
        'offload.operations.gc',
        'operate',
        (),
    ),
    'gc/plan': ListedCommand(
        'gc/plan',
        'Write a plan of the present garbage. It shows each object with its size and the reason. Delete nothing.\n'
        '\n'
        'A plan is an object in the remote, and has a number. `seglog gc` and the Spark job `gc` write the same plans. A new\n'
        'plan leaves out what an older plan names. The last lines list the plans that wait.',
        (
            ListedParameter('number', 'int', 'Show this plan, and write none.', (), metavar='PLAN', least=1),
            ListedParameter('retain', 'str', "Keep so much of every topic's past, whatever its own window is: 7d, 12h, 0.", ('--retain',)),
            ListedParameter('dry_run', 'bool', 'Show what a new plan would name, and write none.', ('--dry-run',), default=False),
        ),
        'offload.operations.gc',
        'more',
        (),
    ),
    'gc/apply': ListedCommand(
        'gc/apply',
        'Carry out one plan as it is, or not at all.\n'
        '\n'
        'The command marks again, and checks each object of the plan by the rule of GC. If anything may need one of them now,\n'
        'it refuses the plan with exit code 4 and deletes nothing. Then `seglog gc` deletes only the rest. The command also\n'
        'refuses a plan that is younger than the grace. Right before each delete, it checks once more.',
        (
            ListedParameter('number', 'int', 'The number of the plan, as `gc plan` shows it.', (), is_required=True, metavar='PLAN', least=1),
            ListedParameter('retain', 'str', 'The same as for the plan, if it had one.', ('--retain',)),
            ListedParameter('grace', 'str', 'The age that the plan must have, instead of gc_grace_s: 24h; 0.', ('--grace',)),
            ListedParameter('dry_run', 'bool', 'Check the plan, and delete nothing.', ('--dry-run',), default=False),
        ),
        'offload.operations.gc',
        'more',
        (),
    ),
    'gc/explain': ListedCommand(
        'gc/explain',
        'Say why GC keeps an object, or that it would go. It names the branch, tag, lease or fork, the commit, window and\n'
        'age.\n'
        '\n'
        'The command marks all volumes, as `gc --dry-run` does. It changes nothing.',
        (
            ListedParameter('key', 'str', 'The key of the object in the remote, or its URL.', (), is_required=True),
            ListedParameter('retain', 'str', "Keep so much of every topic's past, whatever its own window is: 7d, 12h, 0.", ('--retain',)),
        ),
        'offload.operations.gc',
        'more',
        (),
    ),
    'cost': ListedCommand(
        'cost',
        'Show what the remote costs in a month. It says what each topic and branch stores, and what GC would give back.\n'
        '\n'
        'Each object counts once, for the branch that wrote it. A fork shares the objects of its parent: they count there,\n'
        'and `shared` shows their size. GC gives back what nothing needs now, in two runs (`seglog gc`).\n'
        '\n'
        'Only a daemon counts requests, from its start on and for a day at most. The command itself lists the whole remote\n'
        'twice, and reads each commit that this directory does not have. Example: seglog cost --prices prices.toml',
        (
            ListedParameter('prices', 'path', 'A TOML file with prices; without it those of S3 Standard.', ('--prices',), metavar='FILE'),
        ),
        'offload.operations.cost',
        'operate',
        (),
    ),
    'sync': ListedCommand(
        'sync',
        'Fetch new commits of a topic, or send its segments. Then this directory and the volume of the topic are equal.\n'
        '\n'
        'If both have changed, `sync` changes nothing, and `reset` is the way out. If a topic is only in the remote, this\n'
        'directory becomes a replica of it, which reads the records of other writers. With --fetch, this directory keeps\n'
        'every commit that a read of the newest state needs: `log` and `status` then need no remote, and a shell completes\n'
        'the tags of the topic.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('push', 'bool', 'Only send the sealed segments, and the deletes after them, as `offload` does.', ('--push',), default=False),
            ListedParameter('fetch', 'bool', 'Only fetch new commits of other writers. Readers see no change until `sync`.', ('--fetch',), default=False),
            ListedParameter('follow', 'bool', 'Then look again and again, until an interrupt.', ('--follow',), default=False),
            ListedParameter('interval', 'float', 'With --follow: seconds between looks.', ('--interval',), default=5.0, least=0.05),
        ),
        'offload.operations.sync',
        'replicate',
        (),
    ),
    'reset': ListedCommand(
        'reset',
        'Return to the state of the volume. The directory then follows it. This is the way out after `DIVERGED` or\n'
        '`FENCED`.\n'
        '\n'
        'If only this directory has some records or deletes, `reset` needs --as or --discard. The new branch is in this\n'
        'directory only, until it is sealed and offloaded. The next append to the topic here takes it over again, and stops\n'
        'another writer. Example: seglog reset orders --as what-i-had',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('as_branch', 'str', 'Keep the records and deletes that are only here as this new branch.', ('--as',)),
            ListedParameter('discard', 'bool', 'Drop the records and deletes that are only here, for good.', ('--discard',), default=False),
            ListedParameter('message', 'str', 'Why, for the oplog.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'With --discard: show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'With --discard: do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.sync',
        'repair',
        (),
    ),
    'takeover': ListedCommand(
        'takeover',
        'Become the writer of a topic. The former writer is fenced, and offloads nothing of the topic any more.\n'
        '\n'
        'Records that the former writer has not offloaded stay in its directory. There, `seglog reset --as` makes them a\n'
        'branch.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
        ),
        'offload.operations.sync',
        'replicate',
        (),
    ),
    'pause': ListedCommand(
        'pause',
        "Stop the daemon's offload of a topic until `resume`. `seglog offload` still works.",
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
        ),
        'offload.operations.offload',
        'more',
        (),
    ),
    'resume': ListedCommand(
        'resume',
        'Let the daemon offload a paused topic again.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
        ),
        'offload.operations.offload',
        'more',
        (),
    ),
    'retry': ListedCommand(
        'retry',
        'Let the daemon retry a failed offload now. It does not wait for the end of its pause.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
        ),
        'offload.operations.offload',
        'more',
        (),
    ),
    'uploads': ListedCommand(
        'uploads',
        'List abandoned multipart uploads in the remote. No attempt of this directory continues them. Crashes leave them,\n'
        'and they cost money.\n'
        '\n'
        'Another data directory may be uploading under the same prefix right now, so only old uploads count.',
        (
            ListedParameter('abort', 'bool', 'Abort them: their parts are freed.', ('--abort',), default=False),
            ListedParameter('older_than', 'str', 'Only those that began so long ago, such as 24h.', ('--older-than',), default='24h'),
        ),
        'offload.operations.offload',
        'more',
        (),
    ),
    'status': ListedCommand(
        'status',
        'Show what is safe, and what is wrong.\n'
        '\n'
        'A topic has a line: how many records there are, up to which one they are safe in the remote, when its newest commit\n'
        'was made, and how many are only on this disk. Deleted records count as long as they stand between others. Then come\n'
        'the troubles, each with what to do: a disk that gets full, a remote that fails, another writer. With -v there are\n'
        'hot and cold ranges, bounds, epochs and waiting work, too. The command asks only this directory, never the remote\n'
        'or the warm store, so it answers without a network.',
        (
            ListedParameter('topic', 'str', 'One topic; all without it.', (), names='topic'),
            ListedParameter('runs', 'bool', 'Each offloaded range of segments, too.', ('--runs',), default=False),
            ListedParameter('watch', 'bool', 'Show it again every two seconds, until an interrupt.', ('--watch',), default=False),
        ),
        'offload.operations.status',
        'everyday',
        (),
    ),
    'log': ListedCommand(
        'log',
        'Show the commits of a topic. The newest is the first. Each LSN is a target for restore, show and read --at.\n'
        '\n'
        'A branch shows the commits of its parent as N@VOLUME, because it may get a commit N of its own. On a terminal, -v\n'
        'shows volumes, hashes and times in full.\n'
        'Examples: seglog log orders --kind delete,truncate --since "2 days ago"; seglog log orders --graph',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('branch', 'str', 'The branch; the same as TOPIC@BRANCH.', ('--branch',), names='branch'),
            ListedParameter('limit', 'int', 'At most so many commits.', ('-n', '--limit'), least=1),
            ListedParameter('since', 'str', 'Only commits of this time or later, such as 2026-11-21T09:30Z.', ('--since',), names='time'),
            ListedParameter('until', 'str', 'Only commits of this time or earlier.', ('--until',), names='time'),
            ListedParameter('kind', 'str', 'Only commits of these kinds, such as delete,truncate.', ('--kind',)),
            ListedParameter('record', 'int', 'Only commits that added, removed or rewrote this seq.', ('--record',), least=1),
            ListedParameter('stat', 'bool', 'Also records, bytes, writer, epoch and message of each.', ('--stat',), default=False),
            ListedParameter('as_graph', 'bool', 'All branches of the topic, as a graph with their names and tags.', ('--graph',), default=False),
        ),
        'offload.operations.log',
        'time travel',
        (),
    ),
    'show': ListedCommand(
        'show',
        'Show one commit: its segments, writer and message.\n'
        '\n'
        'Examples: seglog show orders lsn:7; seglog show orders head~1',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('commit', 'str', 'lsn:N, head, head~N, tag:NAME, seq:N or a time.', (), is_required=True, metavar='COMMIT', names='target'),
        ),
        'offload.operations.log',
        'more',
        (),
    ),
    'diff': ListedCommand(
        'diff',
        'Show how two points differ. It shows the records that only one has, and the shared records that one has deleted.\n'
        '\n'
        'A point is a branch, or a target in it: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Without --records, the\n'
        'command reads commits and indexes only. Records that are not offloaded yet do not count.\n'
        'Examples: seglog diff orders:head~1; seglog diff orders:tag:v1 orders@try --records',
        (
            ListedParameter('left', 'str', 'TOPIC[@BRANCH], or TOPIC[@BRANCH]:TARGET, such as orders:lsn:7.', (), is_required=True, metavar='LEFT', names='point'),
            ListedParameter('right', 'str', "The point to compare with; the newest state of LEFT's topic without it.", (), names='point'),
            ListedParameter('records', 'bool', 'Also the records: - is only in LEFT, + only in RIGHT.', ('--records',), default=False),
            ListedParameter('limit', 'int', 'At most so many records.', ('-n', '--limit'), least=1),
        ),
        'offload.operations.diff',
        'time travel',
        (),
    ),
    'segments': ListedCommand(
        'segments',
        'List the segments of a topic in the remote, by seq. With --at, those of a past state.\n'
        '\n'
        'Example: seglog segments orders --at head~1',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('at', 'str', 'As it was then: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Now without it.', ('--at',), names='target'),
        ),
        'offload.operations.log',
        'more',
        (),
    ),
    'points': ListedCommand(
        'points',
        'Show the points that matter for a restore. They are each commit that took records away, the point right before\n'
        'it, tags, and starts of branches. Newest first.\n'
        '\n'
        'Each target is one for restore, branch create, tag create and read --at. `seglog undo TOPIC lsn:N` takes back a\n'
        'commit that took records away. Example: seglog points orders --around "2 hours ago"',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('around', 'str', 'The points nearest to this time, such as 2026-11-21T09:30Z.', ('--around',), names='time'),
            ListedParameter('limit', 'int', 'At most so many.', ('-n', '--limit'), default=20, least=1),
        ),
        'offload.operations.points',
        'time travel',
        (),
    ),
    'resolve': ListedCommand(
        'resolve',
        'Show the exact point that a target means. It has its last record, the records around it, and what the next commit\n'
        'did.\n'
        '\n'
        'Nothing is restored. Example: seglog resolve orders --to 2026-11-21T09:30:00Z --pin 1h',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('to', 'str', 'seq:N (right after record N), lsn:N, head, head~N, tag:NAME, or a time.', ('--to',), is_required=True, names='target'),
            ListedParameter('neighbours', 'int', 'So many records on each side.', ('--context',), default=3, least=0),
            ListedParameter('pin', 'str', 'Let GC keep the point for this time, such as 1h.', ('--pin',)),
        ),
        'offload.operations.points',
        'more',
        (),
    ),
    'bisect': ListedCommand(
        'bisect',
        'Find the first record that makes a command fail. It may also be the first delete or truncation that does.\n'
        '\n'
        'CMD gets a past state on standard input, as `seglog read` prints it. Exit code 0 says that the state is good, 1 to\n'
        '127 that it is bad, and 125 that CMD cannot tell. CMD also gets SEGLOG_DIR, SEGLOG_TOPIC, SEGLOG_AT, and\n'
        'SEGLOG_LAST_SEQ if the state ends within a commit. Its output goes to standard error. Nothing is copied or restored.\n'
        'Example: seglog bisect orders --good head~20 run ./check.sh',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('good', 'str', 'A point where CMD succeeds: seq:N, lsn:N, head~N, tag:NAME, or a time.', ('--good',), is_required=True, names='target'),
            ListedParameter('verb', 'choice', 'The word run.', (), is_required=True, metavar='RUN', choices=('run',)),
            ListedParameter('command', 'list', 'The command, and all words behind it.', (), is_required=True, metavar='CMD...'),
            ListedParameter('bad', 'str', 'A later point where CMD fails.', ('--bad',), default='head', names='target'),
        ),
        'offload.cli.bisect',
        'more',
        (),
    ),
    'export': ListedCommand(
        'export',
        'Copy a topic, or a past state of it, to files. A manifest has their seqs and checksums.\n'
        '\n'
        'After an error or a kill, repeat the command: it continues behind its last whole file, with the same state. A state\n'
        'in the remote is pinned meanwhile, so GC keeps it, and no delete or eviction changes it. `seglog append TOPIC FILE\n'
        '--format jsonl` takes a file of jsonl again.\n'
        '\n'
        'Examples: seglog export orders backup --at tag:audit; seglog export orders - --format raw | gzip > orders.gz',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('directory', 'path', 'The directory of the files, or - for standard output.', (), is_required=True, metavar='DIR'),
            ListedParameter('at', 'str', 'As it was then: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Now without it.', ('--at',), names='target'),
            ListedParameter('form', 'choice', 'jsonl: with seqs, times and tags. raw: the bytes of `read`. parquet: needs pyarrow.', ('--format',), default='jsonl', choices=('raw', 'jsonl', 'parquet')),
            ListedParameter('part_bytes', 'int', 'A file ends with the record that brings it to so many bytes.', ('--part-bytes',), default=134217728, least=1),
            ListedParameter('verify', 'bool', 'Write nothing: read the files again, and compare them with the manifest.', ('--verify',), default=False),
        ),
        'offload.cli.export',
        'time travel',
        (),
    ),
    'restore': ListedCommand(
        'restore',
        'Bring a past state back as a branch. Nothing is overwritten and no data is copied.\n'
        '\n'
        'To bring only the records of one delete, eviction or truncation back, without a branch: `seglog undo TOPIC lsn:N`.\n'
        'Examples: seglog restore orders --to head~1 --as before-the-delete;\n'
        'seglog restore orders --to 2026-11-21T09:30:00Z --as morning; seglog restore orders --to "15 minutes ago" --as back',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('to', 'str', 'seq:N (right after record N), lsn:N, head, head~N, tag:NAME, or a time.', ('--to',), is_required=True, names='target'),
            ListedParameter('as_branch', 'str', 'The name of the branch to make.', ('--as',), is_required=True),
            ListedParameter('message', 'str', 'Why, for the oplog.', ('-m', '--message'), default=''),
        ),
        'offload.operations.restore',
        'time travel',
        (),
    ),
    'copy': ListedCommand(
        'copy',
        'Make a new topic of a state of another one. Records keep their seqs, times, tags and nodes.\n'
        '\n'
        'A copy of all records within the remote moves no bytes: it costs four small objects, whatever the size of the topic.\n'
        'A copy of some records, or into another remote, moves them. The source does not change. The next append to the new\n'
        'topic continues its seqs.\n'
        'Examples: seglog copy orders orders-before --at head~1; seglog copy orders orders-eu --tag "eu*";\n'
        'seglog copy orders orders --into s3://other-bucket/archive',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('new', 'str', 'The new topic.', (), is_required=True, metavar='NEW', names='plain topic'),
            ListedParameter('at', 'str', 'Which state: seq:N, lsn:N, head, head~N, tag:NAME, or a time.', ('--at',), default='head', names='target'),
            ListedParameter('start', 'int', 'Only records from this seq on.', ('--from',), least=1),
            ListedParameter('end', 'int', 'Only records up to this seq.', ('--to',), least=1),
            ListedParameter('since', 'str', 'Only records of this time or later, such as 2026-11-21T09:30Z.', ('--since',), names='time'),
            ListedParameter('until', 'str', 'Only records of this time or earlier.', ('--until',), names='time'),
            ListedParameter('tag', 'str', 'Only records with this tag; TEXT* means all tags that begin with TEXT.', ('--tag',)),
            ListedParameter('grep', 'str', 'Only records with bytes that this regular expression matches.', ('--grep',), metavar='PATTERN'),
            ListedParameter('fixed', 'bool', 'With --grep: PATTERN is plain text.', ('-F', '--fixed'), default=False),
            ListedParameter('into', 'str', 'Another remote, such as s3://bucket/prefix or file:///path.', ('--into',), metavar='URL'),
            ListedParameter('message', 'str', 'Why. The commit or the oplog keeps it.', ('-m', '--message'), default=''),
        ),
        'offload.operations.copy',
        'time travel',
        (),
    ),
    'oplog': ListedCommand(
        'oplog',
        'Show who changed which branch or tag. The newest change is the first. `undo` reverts a change by its number.',
        (
            ListedParameter('limit', 'int', 'At most so many.', ('-n', '--limit'), default=50, least=1),
        ),
        'offload.operations.oplog',
        'names',
        (),
    ),
    'undo': ListedCommand(
        'undo',
        'Undo a removal of records, or a change of names. It is the last change of a branch or tag, the change with that\n'
        'number, or one delete, eviction or truncation.\n'
        '\n'
        'Each `undo` without arguments goes one change of a name further back, and no record changes. If records of that\n'
        'topic were taken away since, it asks which of the two is meant. It does not look at other topics. It takes no branch\n'
        'away that alone shows records: `seglog branch delete` shows them, and deletes it. `undo TOPIC lsn:N` brings back the\n'
        'records that a delete, an eviction or a truncation took. They have their seqs and times again, and all else stays.\n'
        'The command first offloads the topic. The directory that writes it writes on; a truncation costs it the hot copies.\n'
        'From another directory, the writer is stopped, and keeps what it did not offload: `seglog reset TOPIC --as NAME`\n'
        'there. `undo TOPIC` brings back what the newest delete took that no commit has, and `undo TOPIC delete:N` what that\n'
        'one took. Without a remote this works as long as the segments are there. Example: seglog undo orders lsn:7',
        (
            ListedParameter('change', 'str', 'The number of a change in `oplog`, or a topic.', (), is_topic=True, names='topic'),
            ListedParameter('commit', 'str', 'With a topic: the delete, eviction or truncation to undo, as lsn:N or lsn:N@VOLUME. Or delete:N for one without a commit; the newest of these is the default.', (), names='target'),
            ListedParameter('partial', 'bool', 'Bring back what is left, if some of the records are gone.', ('--partial',), default=False),
            ListedParameter('message', 'str', 'Why. The commit or the oplog keeps it.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'Show what would come back, and change nothing.', ('--dry-run',), default=False),
        ),
        'offload.operations.oplog',
        'time travel',
        (),
    ),
    'inspect': ListedCommand(
        'inspect',
        'Print the contents of a file or an object. It knows commits, refs, index and data objects, segments and WAL\n'
        'files.\n'
        '\n'
        "It also knows objects of Apache Pulsar's tiered storage. The command changes nothing, and needs no data directory.\n"
        'With --entries, each entry is a line with ledger, entry id, length and the first bytes. With --json, each entry is\n'
        'an object with all its bytes as base64. Examples: seglog inspect s3://my-bucket/acme/refs/orders/main; seglog\n'
        'inspect --entries s3://pulsar/2f6c0d9e-ledger-1234',
        (
            ListedParameter('target', 'str', 'A path, or s3://bucket/key of an object.', (), is_required=True, metavar='OBJECT'),
            ListedParameter('with_entries', 'bool', 'The entries of a data object, of Apache Pulsar or of ours.', ('--entries',), default=False),
            ListedParameter('index', 'str', 'With --entries: its index object.', ('--index',), metavar='OBJECT', shown_default='OBJECT-index, as Pulsar names it, or OBJECT.index, as we do'),
            ListedParameter('first', 'int', 'With --entries: the first entry id.', ('--from',), default=0, least=0),
            ListedParameter('last', 'int', 'With --entries: the last entry id.', ('--to',), least=0),
        ),
        'offload.cli.inspect',
        'more',
        (),
    ),
    'verify': ListedCommand(
        'verify',
        'Check every byte of the data directory. It reads manifests, WAL and segments, sees whether they agree, and\n'
        'changes nothing.\n'
        '\n'
        'The command checks segments in `cold_dir` too. The log must not be open meanwhile. The command does not ask the\n'
        'remote.\n'
        '\n'
        'With --remote, check every branch, tag and lease, their commits, and that each segment is there, with its length.\n'
        'With --deep, check every byte of the segments too. Others may use the remote meanwhile, and the command needs no\n'
        'data directory. With one, it also finds newest commits that the directory knows and the remote has lost. Without\n'
        'one, a branch that has lost its newest commits looks like a shorter one.\n'
        '\n'
        "With --read-data-subset, look at each object of the remote's segments: it is found, lost, corrupt, orphan (no commit\n"
        'names it) or uploading. Read the given share of the segments. With --state FILE, an interrupted check continues, and\n'
        'the next one reads the next share: 20 runs of 5% read everything. Plain text leaves found objects out.\n'
        '\n'
        'If there is damage, the command names file and offset, or the key, and ends with exit code 5.',
        (
            ListedParameter('remote', 'bool', 'Check the remote instead. Others may use it meanwhile.', ('--remote',), default=False),
            ListedParameter('deep', 'bool', 'With --remote: read every byte.', ('--deep',), default=False),
            ListedParameter('subset', 'str', 'Look at each object in the remote, and read this share of them: 5%.', ('--read-data-subset',)),
            ListedParameter('state', 'path', 'With --read-data-subset: a file that makes the check resumable.', ('--state',)),
        ),
        'offload.cli.verify',
        'repair',
        (),
    ),
    'upgrade': ListedCommand(
        'upgrade',
        'Give this directory and its volumes the newest form.\n'
        '\n'
        'What an older version of seglog made keeps its form, so that older versions beside this one go on. The newest form\n'
        'has deletes of ranges (`delete --from`, `--grep`) and undo. First give this version to all that read the remote, to\n'
        "its writers last, and then upgrade in each writer's directory. A volume that another directory writes stays as it\n"
        'is. If a step fails, repeat the command. A form does not go back.',
        (
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.upgrade',
        'more',
        (),
    ),
    'recover': ListedCommand(
        'recover',
        'Make a data directory from a remote alone. It has every topic and branch, with its bounds and configuration.\n'
        '\n'
        'The command copies no records: reads go to the remote. The first append to a topic, or `takeover`, makes this\n'
        'directory its writer. Records that the lost machine had not offloaded are unknown, and the command prints for each\n'
        'topic where they begin. After a failure, repeat the command: it continues. Example: seglog recover\n'
        's3://my-bucket/acme new-data',
        (
            ListedParameter('url', 'str', 'The remote: s3://bucket/prefix, file:///path, or https://host:7373.', (), is_required=True, metavar='URL'),
            ListedParameter('directory', 'path', 'The new data directory.', (), is_required=True, metavar='DIR'),
            ListedParameter('topic', 'str', 'Only this topic, with its branches, or TOPIC@BRANCH.', ('--topic',)),
            ListedParameter('writable', 'bool', 'Take over every topic at once: former writers are fenced.', ('--writable',), default=False),
            ListedParameter('role_arn', 'str', 'The IAM role for the remote, here and in [tenant] of the new seglog.toml.', ('--role-arn',), metavar='ARN'),
        ),
        'offload.cli.start',
        'replicate',
        (),
    ),
    'follow': ListedCommand(
        'follow',
        'Keep a standby that follows a remote. It is a data directory with every topic and branch, for the machine that\n'
        'writes.\n'
        '\n'
        'The first time, the command makes the directory, as `recover` does. Then it looks for new commits again and again,\n'
        'until an interrupt. New topics come along. Each line tells how far readers here were behind, in records and\n'
        'seconds. The command shows a failure of the store, and tries again after a pause that grows.\n'
        '\n'
        'Other commands may read the directory meanwhile. If the writer is lost, stop this command: the first append to a\n'
        'topic, or `takeover`, makes this directory its writer. Example: seglog follow s3://my-bucket/acme standby',
        (
            ListedParameter('url', 'str', 'The remote: s3://bucket/prefix, file:///path, or https://host:7373.', (), is_required=True, metavar='URL'),
            ListedParameter('directory', 'path', 'The data directory, new or made from this remote.', (), is_required=True, metavar='DIR'),
            ListedParameter('interval', 'float', 'Seconds between looks.', ('--interval',), default=5.0, least=0.05),
            ListedParameter('once', 'bool', 'Look once, and end: for scripts.', ('--once',), default=False),
            ListedParameter('role_arn', 'str', 'The IAM role for the remote, here and in [tenant] of the new seglog.toml.', ('--role-arn',), metavar='ARN'),
        ),
        'offload.cli.follow',
        'replicate',
        (),
    ),
    'doctor': ListedCommand(
        'doctor',
        'Check directory, machine and remote. The remote has to keep the promises that seglog needs.\n'
        '\n'
        'In a data directory, the command first checks free disk, the time of a sync, limits of files, permissions, the\n'
        "daemon's certificate, that a daemon answers, and that no other package has a name of ours. A line says `ok`, `warn`\n"
        'or `FAIL`, with what to do. Without a remote, these checks are all.\n'
        '\n'
        'For the remote, the command tries every promise, races included, with about 290 requests that send 37 MB. It works\n'
        "under a fresh prefix doctor/.../ within the remote's own, and then removes its objects. It skips requests that the\n"
        'role may not make, such as deletes. With --remote before the command, it needs no data directory.\n'
        '\n'
        "It also shows how far this machine's clock is from the store's. If a check failed, the exit code is 1.\n"
        '\n'
        'With --spark, the command starts a session of Spark in place of these checks. It examines Java, the jar, the\n'
        'planner, Python on the executors, and reads from each executor with both readers. So it needs a role that may write.',
        (
            ListedParameter('spark', 'bool', 'Check that Spark reads the remote, on every executor.', ('--spark',), default=False),
            ListedParameter('master', 'str', "With --spark: the cluster. By default Spark's configuration names it.", ('--master',)),
        ),
        'offload.cli.doctor',
        'repair',
        (),
    ),
    'serve': ListedCommand(
        'serve',
        'Run the daemon of this directory. It takes records over HTTP, offloads and releases in the background, until\n'
        'SIGTERM.\n'
        '\n'
        'Other commands on the same directory go through the daemon by themselves. After SIGHUP the daemon\n'
        'reads the sections [serve], [offload] and [catalog] of seglog.toml again.\n'
        'Example: seglog -C /var/lib/seglog serve\n'
        '\n'
        'With --tenants, the section [serve] of DIR is for the whole daemon. Each DIR/NAME has its own seglog.toml and its\n'
        'own remote. A token names its tenant, or the path does: /tenants/NAME/topics/... After SIGHUP the daemon opens new\n'
        'directories, and closes those that are gone.\n'
        '\n'
        'With --proxy, the daemon makes DIR if it is new, follows each topic and branch of the remote, and shows the objects\n'
        'of the remote to tokens that may read them. Readers name it as their remote: https://host:7373. The directory has\n'
        'nothing of its own, so it may be removed while the daemon is down.\n'
        'Example: seglog -C /var/cache/seglog serve --proxy s3://my-bucket/acme',
        (
            ListedParameter('tenants', 'bool', 'Serve each data directory below DIR, as the tenant of its name.', ('--tenants',), default=False),
            ListedParameter('proxy', 'str', 'Serve this remote to readers, from a directory that is only a cache.', ('--proxy',), metavar='URL'),
        ),
        'offload.cli.start',
        'operate',
        (),
    ),
    'token/new': ListedCommand(
        'token/new',
        'Make a token for a client of the daemon. Prints its line for the token file, and the token on standard error.\n'
        '\n'
        'The file has the SHA-256 of the token. Nothing keeps the token itself, so note it down. The daemon reads the file\n'
        'at its start and after SIGHUP. The setting is serve.token_file. A token with --tenant is known to that tenant only.\n'
        "Example: seglog token new shipper --role append --topics 'app-*' >> tokens",
        (
            ListedParameter('name', 'str', 'A name for the log and the oplog.', (), is_required=True),
            ListedParameter('role', 'str', 'metrics, read, append or admin; each may do all before it.', ('--role',), is_required=True),
            ListedParameter('topics', 'str', 'The topics, as globs with commas between them.', ('--topics',), default='*'),
            ListedParameter('tenant', 'str', 'Bind the token to this tenant.', ('--tenant',)),
        ),
        'offload.cli.token',
        'more',
        (),
    ),
    'tenant/list': ListedCommand(
        'tenant/list',
        'List the tenants of a daemon. Without one, list the data directories below DIR.\n'
        '\n'
        'With --daemon, the token has the role admin, and is not bound to a tenant. A tenant that is `failed` did not open.\n'
        'Examples: seglog --daemon https://logs:7373 --token-file boss tenant list; seglog -C /srv/seglog tenant list',
        (),
        'offload.cli.tenant',
        'more',
        (),
    ),
    'tenant/policy': ListedCommand(
        'tenant/policy',
        'Print the IAM policy of a role for one tenant. Makes no request.\n'
        '\n'
        "The tenant's remote is s3://BUCKET/PREFIX/NAME. The policy allows the role's actions under that prefix, and nothing\n"
        'else. No role may delete old versions of objects. Two conditions of one operator and key are refused, because IAM\n'
        'would take either; `--condition OPERATOR:KEY=A,B` says so.\n'
        'Examples: seglog tenant policy acme --role writer --bucket archive --condition\n'
        'IpAddress:aws:SourceIp=10.0.0.0/8; seglog tenant policy --session-tags --role reader --bucket archive --base prod/',
        (
            ListedParameter('role', 'choice', 'Each may do all that the one before it may.', ('--role',), is_required=True, choices=('reader', 'writer', 'maintainer', 'admin')),
            ListedParameter('bucket', 'str', 'The bucket.', ('--bucket',), is_required=True),
            ListedParameter('name', 'str', 'The tenant. Leave it out with --session-tags.', ()),
            ListedParameter('base', 'str', 'The prefix that all tenants of the bucket have in common, such as prod/. One for a bucket.', ('--base',), default='', metavar='PREFIX'),
            ListedParameter('kms_key', 'str', "The ARN of the tenant's KMS key, which the role may then use.", ('--kms-key',)),
            ListedParameter('condition', 'list', 'Allow only requests that meet OPERATOR:KEY=VALUE. May be given several times: all must be met.', ('--condition',), metavar='CONDITION'),
            ListedParameter('session_tags', 'bool', 'One policy for all tenants: the session tag `tenant` names the tenant. If a tenant may choose its tag, the policy isolates nothing.', ('--session-tags',), default=False),
            ListedParameter('partition', 'choice', 'The partition of AWS that has the bucket.', ('--partition',), default='aws', choices=('aws', 'aws-cn', 'aws-us-gov')),
        ),
        'offload.cli.tenant',
        'more',
        (),
    ),
    'tenant/bucket-policy': ListedCommand(
        'tenant/bucket-policy',
        'Print a policy for the bucket of the tenants. It denies some requests of everybody. Makes no request.\n'
        '\n'
        'Without options it denies all that the options name. A store other than AWS may not know the conditions.\n'
        'Example: seglog tenant bucket-policy archive',
        (
            ListedParameter('bucket', 'str', 'The bucket.', (), is_required=True),
            ListedParameter('put_if_absent', 'bool', 'Refuse a PUT of a commit without If-None-Match.', ('--put-if-absent',), default=False),
            ListedParameter('tls_only', 'bool', 'Refuse requests over plain HTTP.', ('--tls-only',), default=False),
            ListedParameter('partition', 'choice', 'The partition of AWS that has the bucket.', ('--partition',), default='aws', choices=('aws', 'aws-cn', 'aws-us-gov')),
        ),
        'offload.cli.tenant',
        'more',
        (),
    ),
    'tenant/delete': ListedCommand(
        'tenant/delete',
        'Delete all objects and uploads of a tenant. A LIST proves it. There is no way back.\n'
        '\n'
        'The remote is that of --remote or of the data directory, and ends in /NAME. The command takes every key below it,\n'
        'also keys that seglog did not make. It needs the role maintainer or admin. Before that, take the credentials of\n'
        "the tenant's writers away. If the data directory is this tenant's, no other process may have it open. The\n"
        'directory itself stays.\n'
        '\n'
        'First the names go, then the histories, then the segments. So no reader finds half a state, and after a failure the\n'
        'command can be repeated. No role of a tenant may list uploads: the command aborts those on record in the\n'
        'directory, and with --owner-profile all others too. On a versioned bucket, old versions stay until the lifecycle\n'
        'rule ends them that the command prints.\n'
        'Example: seglog --remote s3://archive/acme tenant delete acme --owner-profile bucket-owner',
        (
            ListedParameter('name', 'str', 'The tenant: the last segment of its remote.', (), is_required=True),
            ListedParameter('owner_profile', 'str', "An AWS profile of the bucket's owner, which may list uploads and old versions.", ('--owner-profile',)),
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.cli.tenant',
        'more',
        (),
    ),
    'tenant/check': ListedCommand(
        'tenant/check',
        "Check that a tenant lists its own prefix and no other. It asks with the tenant's own credentials.\n"
        '\n'
        "Two requests: a LIST of the tenant's prefix has to work, and a LIST of the bucket without a prefix has to be denied.\n"
        'If one of them does not, the exit code is 1. A daemon makes this check at its start and once an hour.\n'
        'The remote is that of the data directory, or --remote before the command.\n'
        'Example: seglog -C /srv/acme tenant check acme',
        (
            ListedParameter('name', 'str', 'The tenant.', (), is_required=True),
        ),
        'offload.cli.tenant',
        'more',
        (),
    ),
    'tenant/credentials': ListedCommand(
        'tenant/credentials',
        'Print credentials of a tenant from STS. They have the form that `credential_process` of an AWS profile takes.\n'
        '\n'
        'STS gives the IAM role and, as a session policy, the policy that `seglog tenant policy` prints. So the credentials\n'
        'do what both allow. Every AWS tool and Spark can use them by a profile, and ask again before they end. The command\n'
        'needs no data directory. In one, its section [tenant] and its remote give the rest.\n'
        'Example: seglog tenant credentials acme --role reader --bucket archive --role-arn\n'
        'arn:aws:iam::111122223333:role/tenants',
        (
            ListedParameter('name', 'str', 'The tenant.', (), is_required=True),
            ListedParameter('role', 'choice', 'What the credentials may do at most.', ('--role',), is_required=True, choices=('reader', 'writer', 'maintainer', 'admin')),
            ListedParameter('lasts', 'str', 'How long they live: 15m to 12h.', ('--for',), default='1h', metavar='DURATION'),
            ListedParameter('bucket', 'str', 'The bucket. By default, the remote names it.', ('--bucket',)),
            ListedParameter('base', 'str', 'With --bucket: the prefix that all tenants have in common.', ('--base',), default='', metavar='PREFIX'),
            ListedParameter('kms_key', 'str', "The ARN of the tenant's KMS key, which they may then use.", ('--kms-key',)),
            ListedParameter('role_arn', 'str', 'The IAM role to take. By default tenant.role_arn.', ('--role-arn',), metavar='ARN'),
            ListedParameter('external_id', 'str', 'The external id that the role asks for.', ('--external-id',)),
            ListedParameter('profile', 'str', 'The AWS profile that may take the role.', ('--profile',)),
        ),
        'offload.cli.tenant',
        'more',
        (),
    ),
    'branch/create': ListedCommand(
        'branch/create',
        'Make a branch. It costs a few small objects, whatever the size of the topic.\n'
        '\n'
        'Read the branch as TOPIC@NAME. The branch that it came from does not see its appends and deletes.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The new branch.', (), is_required=True),
            ListedParameter('at', 'str', 'Where to start: seq:N, lsn:N, head, head~N, tag:NAME, or a time.', ('--at',), default='head', names='target'),
            ListedParameter('message', 'str', 'Why, for the oplog.', ('-m', '--message'), default=''),
        ),
        'offload.operations.restore',
        'more',
        (),
    ),
    'branch/list': ListedCommand(
        'branch/list',
        'List the branches of a topic in the remote. It says how far each branch and its parent went since the fork.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('deleted', 'bool', 'Also list deleted branches that can come back.', ('--deleted',), default=False),
            ListedParameter('as_tree', 'bool', 'Show a tree: each branch below its parent.', ('--tree',), default=False),
        ),
        'offload.operations.branch',
        'more',
        (),
    ),
    'branch/delete': ListedCommand(
        'branch/delete',
        'Delete a branch. `undelete` brings it back until GC deletes the objects that only this branch had.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('name', 'str', 'The branch.', (), is_required=True, names='branch'),
            ListedParameter('message', 'str', 'Why. The commit or the oplog keeps it.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.branch',
        'more',
        (),
    ),
    'branch/undelete': ListedCommand(
        'branch/undelete',
        'Bring a deleted branch back.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('name', 'str', 'The branch.', (), is_required=True, names='branch'),
        ),
        'offload.operations.branch',
        'more',
        (),
    ),
    'branch/rename': ListedCommand(
        'branch/rename',
        'Give a branch another name.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('name', 'str', 'The branch.', (), is_required=True, names='branch'),
            ListedParameter('new', 'str', 'Its new name.', (), is_required=True),
        ),
        'offload.operations.branch',
        'more',
        (),
    ),
    'branch/promote': ListedCommand(
        'branch/promote',
        "Make a branch the topic's main. The former main stays, as another branch, and `undo` takes the change back.\n"
        '\n'
        'If main has records that the branch lacks, nothing changes without --carry or --leave. Deletes that only main has do\n'
        'not count, and are not carried. This directory drops its hot copies of both, once they are read back from the\n'
        'remote. Another directory that writes one of them is stopped, and keeps what it did not offload: `seglog reset TOPIC\n'
        '--as NAME` there.\n'
        'Example: seglog branch promote orders before-the-delete',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('name', 'str', 'The branch.', (), is_required=True, names='branch'),
            ListedParameter('keep', 'str', 'The name of the former main.', ('--keep',), shown_default='before-promote- and the time'),
            ListedParameter('carry', 'bool', 'Append records that only main has to the branch first, with new seqs.', ('--carry',), default=False),
            ListedParameter('leave', 'bool', 'Leave the records that only main has in the former main.', ('--leave',), default=False),
            ListedParameter('message', 'str', 'Why, for the oplog.', ('-m', '--message'), default=''),
        ),
        'offload.operations.branch',
        'more',
        (),
    ),
    'branch/diff': ListedCommand(
        'branch/diff',
        'Count the records that only one of two branches has. It also counts the shared records that one has deleted.\n'
        '\n'
        'Records that are not offloaded yet do not count.',
        (
            ListedParameter('left', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='LEFT', names='topic'),
            ListedParameter('right', 'str', 'The one to compare with.', (), is_required=True, is_topic=True, metavar='RIGHT', names='topic'),
        ),
        'offload.operations.branch',
        'more',
        (),
    ),
    'tag/create': ListedCommand(
        'tag/create',
        'Name a point in the history. It stays restorable, as tag:NAME, until the tag is deleted.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The new tag.', (), is_required=True),
            ListedParameter('at', 'str', 'What to name: seq:N, lsn:N, head, head~N, tag:NAME, or a time.', ('--at',), default='head', names='target'),
            ListedParameter('message', 'str', 'Why.', ('-m', '--message'), default=''),
        ),
        'offload.operations.tag',
        'more',
        (),
    ),
    'tag/list': ListedCommand(
        'tag/list',
        'List the tags of a topic and its branches.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
        ),
        'offload.operations.tag',
        'more',
        (),
    ),
    'tag/delete': ListedCommand(
        'tag/delete',
        'Delete a tag. GC deletes its state if nothing else holds it; before that, `seglog undo` brings the tag back.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('name', 'str', 'The tag.', (), is_required=True, names='tag'),
        ),
        'offload.operations.tag',
        'more',
        (),
    ),
    'cursor/create': ListedCommand(
        'cursor/create',
        'Make a cursor, a durable position in a topic.\n'
        '\n'
        'A reader moves it with acks. The daemon answers an ack when it is durable, so a reader that comes back continues\n'
        'behind what it has acked. Example: seglog cursor create orders billing --at earliest',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The new cursor.', (), is_required=True),
            ListedParameter('at', 'str', 'Behind what it begins: earliest, head, seq:N, lsn:N, head~N, tag:NAME; or from a time on.', ('--at',), default='head', names='target'),
        ),
        'offload.operations.cursor',
        'more',
        (),
    ),
    'cursor/list': ListedCommand(
        'cursor/list',
        'List the cursors, and how far they are behind.\n'
        '\n'
        'Of each it shows the ack floor and the lag behind the head. The command asks only this directory. So the bytes are\n'
        'an estimate from the records on this machine.',
        (
            ListedParameter('topic', 'str', 'One topic; all without it.', (), names='topic'),
        ),
        'offload.operations.cursor',
        'more',
        (),
    ),
    'cursor/reset': ListedCommand(
        'cursor/reset',
        'Move a cursor. Each record up to the target is acked then, and no later one.\n'
        '\n'
        'Reset it to a lower seq to read records again. Example: seglog cursor reset orders billing "2 hours ago"',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The cursor.', (), is_required=True),
            ListedParameter('to', 'str', 'Behind what it continues: earliest, head, seq:N, lsn:N, head~N, tag:NAME; or from a time on.', (), is_required=True, metavar='TARGET', names='target'),
        ),
        'offload.operations.cursor',
        'more',
        (),
    ),
    'cursor/delete': ListedCommand(
        'cursor/delete',
        'Delete a cursor. The records of the topic stay.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The cursor.', (), is_required=True),
        ),
        'offload.operations.cursor',
        'more',
        (),
    ),
    'queue/create': ListedCommand(
        'queue/create',
        'Make a queue of jobs for workers.\n'
        '\n'
        'It hands out each record of a topic to one worker at a time. A worker claims jobs and acks those that it has done. A\n'
        'job that is not acked before its lease ends comes again. The daemon serves claims over HTTP, and `client.queue` of\n'
        'seglog.connect asks it.\n'
        'Example: seglog queue create orders billing --lease 2m --dead-letter orders-dead',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The new queue.', (), is_required=True),
            ListedParameter('lease', 'str', 'How long a worker has a job before it comes again, such as 30s.', ('--lease',), default='30s'),
            ListedParameter('max_deliver', 'int', 'A job is dead after so many deliveries.', ('--max-deliver',), default=5, least=1),
            ListedParameter('on_ack', 'choice', 'keep: the topic stays as it is. delete: an acked job is deleted soon.', ('--on-ack',), shown_default='keep', choices=('keep', 'delete')),
            ListedParameter('dead_letter', 'str', 'The topic that gets dead jobs.', ('--dead-letter',), metavar='TOPIC', names='plain topic'),
            ListedParameter('max_in_flight', 'str', 'So many jobs at most are with workers at a time; none: no bound.', ('--max-in-flight',), default='none'),
            ListedParameter('max_dead_per_minute', 'int', 'The queue pauses when more jobs die within a minute.', ('--max-dead-per-minute',), default=100, least=1),
            ListedParameter('claim_jitter_ms', 'int', 'Claims within so many ms share the jobs evenly; 0: each gets what there is.', ('--claim-jitter-ms',), default=0, least=0),
        ),
        'offload.operations.queue',
        'more',
        (),
    ),
    'queue/list': ListedCommand(
        'queue/list',
        'List the queues, and what their jobs do.',
        (
            ListedParameter('topic', 'str', 'One topic; all without it.', (), names='topic'),
        ),
        'offload.operations.queue',
        'more',
        (),
    ),
    'queue/show': ListedCommand(
        'queue/show',
        'Show a queue, and why no job comes.\n'
        '\n'
        'The one reason is one of these: the queue is empty or paused, its jobs are in flight, or none is due before a time.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The queue.', (), is_required=True),
        ),
        'offload.operations.queue',
        'more',
        (),
    ),
    'queue/set': ListedCommand(
        'queue/set',
        'Change a queue, or let it go on after a pause. The other settings keep their values.\n'
        '\n'
        'Leases that workers have keep their deadlines. Example: seglog queue set orders billing --resume',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The queue.', (), is_required=True),
            ListedParameter('lease', 'str', 'How long a worker has a job before it comes again, such as 30s.', ('--lease',)),
            ListedParameter('max_deliver', 'int', 'A job is dead after so many deliveries.', ('--max-deliver',), least=1),
            ListedParameter('dead_letter', 'str', 'The topic that gets dead jobs.', ('--dead-letter',), metavar='TOPIC', names='plain topic'),
            ListedParameter('max_in_flight', 'str', 'So many jobs at most are with workers at a time; none: no bound.', ('--max-in-flight',)),
            ListedParameter('max_dead_per_minute', 'int', 'The queue pauses when more jobs die within a minute.', ('--max-dead-per-minute',), least=1),
            ListedParameter('claim_jitter_ms', 'int', 'Claims within so many ms share the jobs evenly; 0: each gets what there is.', ('--claim-jitter-ms',), least=0),
            ListedParameter('resume', 'bool', 'Let a queue go on that paused because too many jobs died.', ('--resume',), default=False),
        ),
        'offload.operations.queue',
        'more',
        (),
    ),
    'queue/delete': ListedCommand(
        'queue/delete',
        'Delete a queue. Its leases end, and the records of the topic stay.',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The queue.', (), is_required=True),
        ),
        'offload.operations.queue',
        'more',
        (),
    ),
    'queue/redrive': ListedCommand(
        'queue/redrive',
        'Append the dead letters of a queue again, as new jobs. Each letter is taken once.\n'
        '\n'
        'The letters stay in the topic of dead letters. Example: seglog queue redrive orders billing',
        (
            ListedParameter('topic', 'str', 'TOPIC or TOPIC@BRANCH.', (), is_required=True, is_topic=True, metavar='TOPIC', names='topic'),
            ListedParameter('name', 'str', 'The queue.', (), is_required=True),
            ListedParameter('to', 'str', 'The topic that gets them; that of the queue without it.', ('--to',), metavar='TOPIC', names='plain topic'),
        ),
        'offload.operations.queue',
        'more',
        (),
    ),
    'router/create': ListedCommand(
        'router/create',
        'Copy the records of one topic to another one.\n'
        '\n'
        'A daemon that serves the directory copies each record once, in order, with its value, tag and node. The destination\n'
        'takes no other appends. Example: seglog router create invoices --from orders --to billing --tag "eu*"',
        (
            ListedParameter('name', 'str', 'The new router.', (), is_required=True),
            ListedParameter('source', 'str', 'The topic to copy from.', ('--from',), is_required=True, names='plain topic'),
            ListedParameter('destination', 'str', 'The topic to copy to. It is made if there is none.', ('--to',), is_required=True, names='plain topic'),
            ListedParameter('tag', 'str', 'Only records with this tag; TEXT* means all tags that begin with TEXT.', ('--tag',)),
            ListedParameter('grep', 'str', 'Only records with bytes that this regular expression matches.', ('--grep',), metavar='PATTERN'),
            ListedParameter('drop_tag', 'bool', 'Copy without the tag.', ('--drop-tag',), default=False),
            ListedParameter('drop_node', 'bool', 'Copy without the node.', ('--drop-node',), default=False),
            ListedParameter('at', 'str', 'Behind what it begins: earliest, head, seq:N, lsn:N, head~N, tag:NAME; or from a time on.', ('--at',), default='earliest', names='target'),
        ),
        'offload.operations.router',
        'more',
        (),
    ),
    'router/list': ListedCommand(
        'router/list',
        'List the routers, and how far they are behind.\n'
        '\n'
        'A router that stopped says why. The command asks only this directory.',
        (),
        'offload.operations.router',
        'more',
        (),
    ),
    'router/delete': ListedCommand(
        'router/delete',
        'Delete a router. The copies stay, and the destination takes appends again.\n'
        '\n'
        'The answer has its place, from which another one may go on with `--at seq:N`. It has none if nobody knows it.',
        (
            ListedParameter('name', 'str', 'The router.', (), is_required=True),
        ),
        'offload.operations.router',
        'more',
        (),
    ),
    'router/pause': ListedCommand(
        'router/pause',
        'Let a router wait, also over restarts. What it misses meanwhile is copied after `router resume`.',
        (
            ListedParameter('name', 'str', 'The router.', (), is_required=True),
        ),
        'offload.operations.router',
        'more',
        (),
    ),
    'router/resume': ListedCommand(
        'router/resume',
        'Let a paused router go on.',
        (
            ListedParameter('name', 'str', 'The router.', (), is_required=True),
        ),
        'offload.operations.router',
        'more',
        (),
    ),
    'pin/list': ListedCommand(
        'pin/list',
        'List the pins in the remote. They are leases on past states, which GC keeps until they expire.\n'
        '\n'
        '`resolve --pin` makes a pin, and so does a reader such as a Spark job.',
        (
            ListedParameter('topic', 'str', 'Only the pins of this topic.', (), names='plain topic'),
        ),
        'offload.operations.pin',
        'more',
        (),
    ),
    'pin/refresh': ListedCommand(
        'pin/refresh',
        'Extend a pin. A pin that has expired does not come back, because its state may be gone.',
        (
            ListedParameter('name', 'str', 'The pin, as `pin list` shows it.', (), is_required=True),
            ListedParameter('time', 'str', 'Hold for so long from now on, such as 12h. No pin gets shorter.', ('--for',), default='1h'),
        ),
        'offload.operations.pin',
        'more',
        (),
    ),
    'pin/release': ListedCommand(
        'pin/release',
        'End a pin now. If its holder still reads the state, GC may delete objects under the reader.',
        (
            ListedParameter('name', 'str', 'The pin, as `pin list` shows it.', (), is_required=True),
        ),
        'offload.operations.pin',
        'more',
        (),
    ),
    'topic/create': ListedCommand(
        'topic/create',
        'Make a topic with a configuration of its own. Without this the first append makes it, with the defaults.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('codec', 'str', "How it is offloaded: zstd (small) or none (Apache Pulsar's format).", ('--codec',)),
            ListedParameter('durability', 'str', 'When an append is acked: fsync, disk, memory or ephemeral (never written).', ('--durability',), default='fsync'),
            ListedParameter('priority', 'int', 'Followers of a higher one get news first: -250 to 1000.', ('--priority',), default=0, least=-250),
            ListedParameter('auto_priority', 'choice', 'Recent consumption adds up to 250 to it: on or off.', ('--auto-priority',), choices=('on', 'off')),
        ),
        'offload.operations.topic',
        'more',
        (),
    ),
    'topic/set': ListedCommand(
        'topic/set',
        'Change how a topic keeps and offloads its records. The other options keep their values.\n'
        '\n'
        'Retention deletes whole sealed segments, so a topic keeps somewhat more than its cap. With a remote, it deletes a\n'
        'segment only after the segment is offloaded and read back. The remote learns a new window with the next offload. A\n'
        'replica has the configuration of its writer.\n'
        '\n'
        'Example: seglog topic set access --ttl 30d --cap-bytes 50GB',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('ttl', 'str', 'Show nothing older, such as 12h or 7d, and evict it; none: never.', ('--ttl',)),
            ListedParameter('cap_records', 'str', 'Keep about so many records on this disk; none: all.', ('--cap-records',)),
            ListedParameter('cap_bytes', 'str', 'Keep about so many bytes, such as 10GB; none: all.', ('--cap-bytes',)),
            ListedParameter('discard', 'str', 'At a cap: old (evict the oldest) or reject (refuse the append).', ('--discard',)),
            ListedParameter('durability', 'str', 'When an append is acked: fsync, disk, memory or ephemeral (never written).', ('--durability',)),
            ListedParameter('offload_after', 'str', 'Offload a sealed segment that old, such as 10m; never; default.', ('--offload-after',)),
            ListedParameter('offload_hot_bytes', 'str', 'Or when newer ones hold so much, such as 1GB; never; default.', ('--offload-hot-bytes',)),
            ListedParameter('tail_interval', 'str', 'Seal and offload the tail that often; never; default.', ('--tail-interval',)),
            ListedParameter('window', 'str', 'Keep every past state that long, such as 30d; 0; default.', ('--window',)),
            ListedParameter('priority', 'int', 'Followers of a higher one get news first: -250 to 1000.', ('--priority',), least=-250),
            ListedParameter('auto_priority', 'choice', 'Recent consumption adds up to 250 to it: on or off.', ('--auto-priority',), choices=('on', 'off')),
        ),
        'offload.operations.topic',
        'more',
        (),
    ),
    'topic/show': ListedCommand(
        'topic/show',
        "Show a topic's configuration and its bounds. A replica is shown as of its last sync.",
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
        ),
        'offload.operations.topic',
        'more',
        (),
    ),
    'topic/delete': ListedCommand(
        'topic/delete',
        'Delete a topic and all its records for good. This is for a topic of which the remote has nothing.\n'
        '\n'
        'If the topic has a history in the remote, the command needs --detach. It then offloads the rest, reads all of it\n'
        'back, and deletes the topic in this directory only. `seglog sync TOPIC` follows the topic again, and `seglog\n'
        'takeover TOPIC` writes it again. `seglog branch delete` deletes a branch in the remote. A replica is no longer\n'
        'followed.',
        (
            ListedParameter('topic', 'str', 'The topic.', (), is_required=True, names='plain topic'),
            ListedParameter('detach', 'bool', 'If it has a history in the remote: delete it in this directory only.', ('--detach',), default=False),
            ListedParameter('discard', 'bool', 'With --detach: drop the records that are not offloaded, for good.', ('--discard',), default=False),
            ListedParameter('message', 'str', 'Why, for the oplog of a topic with a history in the remote.', ('-m', '--message'), default=''),
            ListedParameter('dry_run', 'bool', 'Show what would go, and change nothing.', ('--dry-run',), default=False),
            ListedParameter('yes', 'bool', 'Do it without a question.', ('--yes',), default=False),
        ),
        'offload.operations.topic',
        'more',
        (),
    ),
    'topic/list': ListedCommand(
        'topic/list',
        'List the topics of this directory. It also lists those that it only follows.',
        (),
        'offload.operations.topic',
        'everyday',
        ('ls',),
    ),
    'completion': ListedCommand(
        'completion',
        'Print the script that completes words in a shell.\n'
        '\n'
        'It completes commands, options and names. The names of topics, branches and tags are those that the data\n'
        'directory knows. No completion asks the remote.\n'
        'Examples: eval "$(seglog completion bash)" in ~/.bashrc; seglog completion fish >\n'
        '~/.config/fish/completions/seglog.fish',
        (
            ListedParameter('shell', 'choice', 'The shell.', (), is_required=True, metavar='SHELL', choices=('bash', 'zsh', 'fish')),
        ),
        '',
        'more',
        (),
    ),
    'help': ListedCommand(
        'help',
        'Show the help of a command, as in `seglog help read`. With --all, list all commands.',
        (),
        '',
        'more',
        (),
    ),
    'version': ListedCommand(
        'version',
        'Show the version.',
        (),
        '',
        'more',
        (),
    ),
}
