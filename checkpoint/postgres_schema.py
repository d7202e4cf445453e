"""What lies in PostgreSQL: the tables, the functions that read and write them, and how a database gets them.

This file knows SQL and the words of the schema; it knows neither connections nor Python's side of a checkpoint.

Functions, for three reasons. A commit is one statement, so it is one round trip and one transaction, and no lock is
held while anything else runs. Each statement inside sees what was committed before it began, so what is looked at
under the lock of the thread's row is true. And their plans are kept by the server although no statement is prepared,
so a pooler may hand every transaction to another connection. A function is never replaced: a release that needs
another adds one under a new number, and processes of both releases go on.
"""

from __future__ import annotations

from typing import LiteralString

# The rows of a put travel as JSON, since a statement cannot take rows. Their bytes stand one behind another in one
# value beside them, from `at` on and `size` long. `i` is the place of a row in the list of the caller.
_AS_CHECKPOINTS: LiteralString = (
    "AS x (i int, above bigint, at int, due int, versions int, metadata int, ns text, id bigint, parent_ns text, "
    "parent_id bigint, token text, source text, status text, step bigint, created_at float8, epoch bigint, "
    "caller text, fingerprint text, line bigint[], complete boolean)"
)
_AS_VALUES: LiteralString = (
    "AS x (i int, at int, size int, ns text, channel text, version bigint, kind text, base bigint)"
)
_AS_RECORDS: LiteralString = "AS x (i int, at int, size int, ns text, checkpoint bigint, task text, kind text)"

# What leads to each version of the schema from the one before. Only ever append.
# Names order as bytes, as Python orders them, and so that no two spellings are one name.
_VERSIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        # One page of these rows is written by every commit; room is left in it for the next version of the row.
        """CREATE TABLE pregel_threads (
            thread text COLLATE "C" NOT NULL PRIMARY KEY, incarnation text NOT NULL, head bigint NOT NULL
        ) WITH (fillfactor = 70)""",
        """CREATE TABLE pregel_checkpoints (
            thread text COLLATE "C" NOT NULL, ns text COLLATE "C" NOT NULL, id bigint NOT NULL,
            parent_ns text COLLATE "C" NOT NULL, parent_id bigint NOT NULL, token text NOT NULL, source text NOT NULL,
            status text NOT NULL, step bigint NOT NULL, created_at float8 NOT NULL, epoch bigint NOT NULL,
            caller text NOT NULL, fingerprint text NOT NULL, line bigint[] NOT NULL, due bytea NOT NULL,
            complete boolean NOT NULL, versions bytea NOT NULL, metadata bytea NOT NULL,
            PRIMARY KEY (thread, ns, id)
        )""",
        # A child that keeps its memory is looked up by epoch among all its earlier calls. The root never is.
        "CREATE INDEX pregel_checkpoints_by_epoch ON pregel_checkpoints (thread, ns, epoch, id) WHERE ns <> ''",
        """CREATE TABLE pregel_values (
            thread text COLLATE "C" NOT NULL, ns text COLLATE "C" NOT NULL, channel text COLLATE "C" NOT NULL,
            version bigint NOT NULL, kind text NOT NULL, base bigint NOT NULL, data bytea NOT NULL,
            PRIMARY KEY (thread, ns, channel, version)
        )""",
        """CREATE TABLE pregel_records (
            thread text COLLATE "C" NOT NULL, ns text COLLATE "C" NOT NULL, checkpoint bigint NOT NULL,
            task text COLLATE "C" NOT NULL, kind text NOT NULL, data bytea NOT NULL,
            seq bigint GENERATED ALWAYS AS IDENTITY,
            PRIMARY KEY (thread, ns, checkpoint, task)
        )""",
        # The place of the first record that is not there with equal bytes.
        f"""CREATE FUNCTION pregel_other_record_1(p_thread text, p_records json, p_data bytea)
        RETURNS int STABLE LANGUAGE sql AS $$
            SELECT min(x.i) FROM json_to_recordset(p_records) {_AS_RECORDS}
            WHERE NOT EXISTS (
                SELECT FROM pregel_records AS r
                WHERE (r.thread, r.ns, r.checkpoint, r.task, r.kind, r.data)
                    = (p_thread, x.ns, x.checkpoint, x.task, x.kind, substring(p_data FROM x.at FOR x.size))
            )
        $$""",
        # The fence, then the rows. A refusal is an error of its own code, so that nothing is written; its detail says
        # in JSON what was found. Rows that are there already are passed over and counted, then compared.
        f"""CREATE FUNCTION pregel_put_1(
            p_thread text, p_incarnation text, p_head bigint, p_new_head bigint, p_look boolean,
            p_checkpoints json, p_values json, p_records json, p_data bytea
        ) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
        DECLARE
            why json;
            added bigint;
        BEGIN
            IF p_head = 0 THEN
                INSERT INTO pregel_threads AS t VALUES (p_thread, p_incarnation, p_new_head)
                ON CONFLICT (thread) DO UPDATE SET head = excluded.head
                WHERE t.incarnation = excluded.incarnation AND t.head = 0;
            ELSE
                UPDATE pregel_threads SET head = p_new_head
                WHERE thread = p_thread AND incarnation = p_incarnation AND head = p_head;
            END IF;
            IF NOT FOUND THEN
                SELECT json_build_array('fence', incarnation, head) INTO why
                FROM pregel_threads WHERE thread = p_thread;
                RAISE EXCEPTION USING ERRCODE = 'PRGL0', MESSAGE = 'another run has begun since',
                    DETAIL = coalesce(why, json_build_array('fence', NULL, NULL));
            END IF;
            IF p_look THEN
                SELECT json_build_array('id', x.i, t.top) INTO why
                FROM json_to_recordset(p_checkpoints) {_AS_CHECKPOINTS}
                CROSS JOIN LATERAL (
                    SELECT coalesce(x.above, (
                        SELECT max(c.id) FROM pregel_checkpoints AS c WHERE c.thread = p_thread AND c.ns = x.ns
                    ), 0) AS top
                ) AS t
                WHERE x.id <= t.top ORDER BY x.i LIMIT 1;
                IF why IS NOT NULL THEN
                    RAISE EXCEPTION USING ERRCODE = 'PRGL0', MESSAGE = 'the number is used already', DETAIL = why;
                END IF;
            END IF;
            IF p_checkpoints IS NOT NULL THEN
                INSERT INTO pregel_checkpoints
                SELECT p_thread, x.ns, x.id, x.parent_ns, x.parent_id, x.token, x.source, x.status, x.step,
                    x.created_at, x.epoch, x.caller, x.fingerprint, x.line,
                    substring(p_data FROM x.at FOR x.due), x.complete,
                    substring(p_data FROM x.at + x.due FOR x.versions),
                    substring(p_data FROM x.at + x.due + x.versions FOR x.metadata)
                FROM json_to_recordset(p_checkpoints) {_AS_CHECKPOINTS};
            END IF;
            IF p_values IS NOT NULL THEN
                INSERT INTO pregel_values
                SELECT p_thread, x.ns, x.channel, x.version, x.kind, x.base, substring(p_data FROM x.at FOR x.size)
                FROM json_to_recordset(p_values) {_AS_VALUES}
                ON CONFLICT DO NOTHING;
                GET DIAGNOSTICS added = ROW_COUNT;
                IF added < json_array_length(p_values) THEN
                    SELECT json_build_array('value', min(x.i)) INTO why
                    FROM json_to_recordset(p_values) {_AS_VALUES}
                    WHERE NOT EXISTS (
                        SELECT FROM pregel_values AS v
                        WHERE (v.thread, v.ns, v.channel, v.version, v.kind, v.base, v.data)
                            = (p_thread, x.ns, x.channel, x.version, x.kind, x.base,
                                substring(p_data FROM x.at FOR x.size))
                    ) HAVING count(*) > 0;
                    IF why IS NOT NULL THEN
                        RAISE EXCEPTION USING ERRCODE = 'PRGL0', MESSAGE = 'the value is another', DETAIL = why;
                    END IF;
                END IF;
            END IF;
            IF p_records IS NOT NULL THEN
                INSERT INTO pregel_records
                SELECT p_thread, x.ns, x.checkpoint, x.task, x.kind, substring(p_data FROM x.at FOR x.size)
                FROM json_to_recordset(p_records) {_AS_RECORDS}
                ON CONFLICT DO NOTHING;
                GET DIAGNOSTICS added = ROW_COUNT;
                IF added < json_array_length(p_records) THEN
                    added := pregel_other_record_1(p_thread, p_records, p_data);
                    IF added IS NOT NULL THEN
                        RAISE EXCEPTION USING ERRCODE = 'PRGL0', MESSAGE = 'the record is another',
                            DETAIL = json_build_array('record', added);
                    END IF;
                END IF;
            END IF;
        END $$""",
        # Whether exactly this put was written before.
        f"""CREATE FUNCTION pregel_was_applied_1(
            p_thread text, p_incarnation text, p_checkpoints json, p_records json, p_data bytea
        ) RETURNS boolean STABLE LANGUAGE sql AS $$
            SELECT EXISTS (SELECT FROM pregel_threads WHERE thread = p_thread AND incarnation = p_incarnation)
            AND NOT EXISTS (
                SELECT FROM json_to_recordset(p_checkpoints) {_AS_CHECKPOINTS}
                WHERE NOT EXISTS (
                    SELECT FROM pregel_checkpoints AS c
                    WHERE (c.thread, c.ns, c.id, c.token) = (p_thread, x.ns, x.id, x.token)
                )
            )
            AND pregel_other_record_1(p_thread, p_records, p_data) IS NULL
        $$""",
        # Without the thread first, what a put that waits is about to write would be left behind.
        """CREATE FUNCTION pregel_delete_1(p_thread text) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            DELETE FROM pregel_threads WHERE thread = p_thread;
            IF FOUND THEN
                DELETE FROM pregel_checkpoints WHERE thread = p_thread;
                DELETE FROM pregel_values WHERE thread = p_thread;
                DELETE FROM pregel_records WHERE thread = p_thread;
            END IF;
        END $$""",
        # The thread, the top of the namespace, and the chosen checkpoint with what its ancestors changed and the
        # records of its line. STABLE: all of it is read from the one instant of the statement that calls.
        # LIMIT and OFFSET in a lateral query make the planner look each row up by its key, whatever it believes.
        # A parent's id is lower than its child's. Without that condition a damaged row could make an endless walk.
        """CREATE FUNCTION pregel_find_1(
            p_thread text, p_ns text, p_id bigint, p_below bigint, p_epochs bigint[],
            OUT o_incarnation text, OUT o_head bigint, OUT o_top bigint, OUT o_changes bytea[], OUT o_lost bigint,
            OUT o_checkpoints bigint[], OUT o_tasks text[], OUT o_kinds text[], OUT o_data bytea[],
            OUT o_ns text, OUT o_id bigint, OUT o_parent_ns text, OUT o_parent_id bigint, OUT o_token text,
            OUT o_source text, OUT o_status text, OUT o_step bigint, OUT o_created_at float8, OUT o_epoch bigint,
            OUT o_caller text, OUT o_fingerprint text, OUT o_line bigint[], OUT o_due bytea, OUT o_complete boolean,
            OUT o_versions bytea, OUT o_metadata bytea
        ) STABLE LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
        DECLARE
            chosen bigint := p_id;
        BEGIN
            SELECT t.incarnation, t.head INTO o_incarnation, o_head FROM pregel_threads AS t WHERE t.thread = p_thread;
            IF NOT FOUND THEN
                RETURN;
            END IF;
            SELECT coalesce(max(c.id), 0) INTO o_top
            FROM pregel_checkpoints AS c WHERE c.thread = p_thread AND c.ns = p_ns;
            IF chosen IS NOT NULL THEN
                NULL;
            ELSIF p_below IS NOT NULL THEN
                SELECT max(c.id) INTO chosen
                FROM pregel_checkpoints AS c WHERE c.thread = p_thread AND c.ns = p_ns AND c.id < p_below;
            ELSIF p_epochs IS NULL THEN
                chosen := o_top;
            ELSIF p_ns = '' THEN
                SELECT max(c.id) INTO chosen
                FROM pregel_checkpoints AS c WHERE c.thread = p_thread AND c.ns = '' AND c.epoch = ANY (p_epochs);
            ELSE
                SELECT max(m.id) INTO chosen FROM unnest(p_epochs) AS e CROSS JOIN LATERAL (
                    SELECT max(c.id) AS id FROM pregel_checkpoints AS c
                    WHERE c.thread = p_thread AND c.ns = p_ns AND c.ns <> '' AND c.epoch = e
                ) AS m;
            END IF;
            SELECT c.ns, c.id, c.parent_ns, c.parent_id, c.token, c.source, c.status, c.step, c.created_at, c.epoch,
                c.caller, c.fingerprint, c.line, c.due, c.complete, c.versions, c.metadata
            INTO o_ns, o_id, o_parent_ns, o_parent_id, o_token, o_source, o_status, o_step, o_created_at, o_epoch,
                o_caller, o_fingerprint, o_line, o_due, o_complete, o_versions, o_metadata
            FROM pregel_checkpoints AS c WHERE c.thread = p_thread AND c.ns = p_ns AND c.id = chosen;
            IF NOT FOUND THEN
                RETURN;
            END IF;
            IF o_complete THEN
                o_changes := ARRAY[o_versions];
            ELSE
                WITH RECURSIVE walk AS (
                    SELECT 0 AS depth, o_id AS id, o_parent_ns COLLATE "C" AS parent_ns, o_parent_id AS parent_id,
                        o_complete AS complete, o_versions AS versions
                    UNION ALL
                    SELECT w.depth + 1, p.* FROM walk AS w CROSS JOIN LATERAL (
                        SELECT c.id, c.parent_ns, c.parent_id, c.complete, c.versions FROM pregel_checkpoints AS c
                        WHERE c.thread = p_thread AND c.ns = p_ns AND c.id = w.parent_id LIMIT 1
                    ) AS p
                    WHERE NOT w.complete AND w.parent_ns = p_ns AND w.parent_id < w.id
                )
                SELECT array_agg(w.versions ORDER BY w.depth DESC),
                    (array_agg(CASE WHEN w.complete OR w.parent_ns <> p_ns THEN 0 ELSE w.parent_id END
                        ORDER BY w.depth DESC))[1]
                INTO o_changes, o_lost FROM walk AS w;
            END IF;
            SELECT array_agg(s.checkpoint), array_agg(s.task), array_agg(s.kind), array_agg(s.data)
            INTO o_checkpoints, o_tasks, o_kinds, o_data
            FROM (
                SELECT r.* FROM unnest(o_line) WITH ORDINALITY AS l (id, n) CROSS JOIN LATERAL (
                    SELECT q.* FROM pregel_records AS q
                    WHERE q.thread = p_thread AND q.ns = p_ns AND q.checkpoint = l.id OFFSET 0
                ) AS r
                ORDER BY l.n, r.seq
            ) AS s;
        END $$""",
        # A row with the incarnation of the thread, so that the reader sees whether it is the one of which it knows the
        # versions; then the values of these channels and all that they are based on. The walk carries no data, which
        # may be large.
        """CREATE FUNCTION pregel_values_1(p_thread text, p_ns text, p_versions json)
        RETURNS TABLE (o_incarnation text, o_channel text, o_version bigint, o_kind text, o_base bigint, o_data bytea)
        STABLE LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
        BEGIN
            SELECT t.incarnation INTO o_incarnation FROM pregel_threads AS t WHERE t.thread = p_thread;
            IF NOT FOUND THEN
                RETURN;
            END IF;
            RETURN NEXT;
            RETURN QUERY
            WITH RECURSIVE chain AS (
                SELECT f.* FROM json_each_text(p_versions) AS j CROSS JOIN LATERAL (
                    SELECT v.channel, v.version, v.kind, v.base FROM pregel_values AS v
                    WHERE v.thread = p_thread AND v.ns = p_ns AND v.channel = j.key AND v.version = j.value::bigint
                    LIMIT 1
                ) AS f
                UNION ALL
                SELECT f.* FROM chain AS n CROSS JOIN LATERAL (
                    SELECT v.channel, v.version, v.kind, v.base FROM pregel_values AS v
                    WHERE v.thread = p_thread AND v.ns = p_ns AND v.channel = n.channel AND v.version = n.base
                    LIMIT 1
                ) AS f
                WHERE n.kind = 'delta' AND n.base < n.version
            )
            SELECT o_incarnation, f.* FROM chain AS n CROSS JOIN LATERAL (
                SELECT v.channel, v.version, v.kind, v.base, v.data FROM pregel_values AS v
                WHERE v.thread = p_thread AND v.ns = p_ns AND v.channel = n.channel AND v.version = n.version
                LIMIT 1
            ) AS f;
        END $$""",
    ),
)

NEWEST = len(_VERSIONS)
REFUSED = "PRGL0"  # the error code of a put that is refused

# --- what the saver says -----------------------------------------------------------------------------------------

PUT: LiteralString = "SELECT pregel_put_1(%s, %s, %s, %s, %s, %s, %s, %s, %b)"
WAS_APPLIED: LiteralString = "SELECT pregel_was_applied_1(%s, %s, %s, %s, %b)"
DELETE: LiteralString = "SELECT pregel_delete_1(%s)"
FIND: LiteralString = "SELECT * FROM pregel_find_1(%s, %s, %s, %s, %s::bigint[])"
VALUES: LiteralString = "SELECT * FROM pregel_values_1(%s, %s, %s)"
THREADS: LiteralString = "SELECT thread FROM pregel_threads WHERE thread >= %s ORDER BY thread LIMIT 256"
# Hops from one namespace to the next. DISTINCT would read every checkpoint of the thread.
NAMESPACES: LiteralString = """
WITH RECURSIVE hop (ns) AS (
    SELECT min(ns) FROM pregel_checkpoints WHERE thread = %(thread)s
    UNION ALL
    SELECT (SELECT min(c.ns) FROM pregel_checkpoints AS c WHERE c.thread = %(thread)s AND c.ns > hop.ns)
    FROM hop WHERE hop.ns IS NOT NULL
)
SELECT ns FROM hop WHERE ns IS NOT NULL
"""

# --- how a database gets its tables ------------------------------------------------------------------------------

IS_SET_UP: LiteralString = "SELECT to_regclass('pregel_schema') IS NOT NULL"
VERSION: LiteralString = "SELECT max(version) FROM pregel_schema"
_LOCK = 0x50524745_4C000001  # "PREGEL"; of those who set up at once in one database, one goes first


def migration() -> LiteralString:
    """Compose the one statement that brings a database of any version to the newest.

    One statement, so that it is one transaction, also where the connection makes its own; and it stands in the
    transaction of the caller if there is one. The lock ends with it.
    """
    steps: LiteralString = ""
    for version, statements in enumerate(_VERSIONS, start=1):
        once: LiteralString = "".join(["EXECUTE $pregel$" + statement + "$pregel$;\n" for statement in statements])
        steps += f"IF known < {version} THEN\n{once}END IF;\n"
    return f"""DO $setup$
        DECLARE
            known integer;
        BEGIN
            PERFORM pg_advisory_xact_lock({_LOCK});
            CREATE TABLE IF NOT EXISTS pregel_schema (version integer NOT NULL PRIMARY KEY);
            SELECT coalesce(max(version), 0) INTO known FROM pregel_schema;
            {steps}
            IF known < {NEWEST} THEN
                INSERT INTO pregel_schema VALUES ({NEWEST});
            END IF;
        END $setup$"""
