-- Raptor on PostgreSQL, version 2: a task costs the server less each time that it moves on.

-- PostgreSQL reads every CHECK anew for each statement, and applies it to each version of a row. What a row begins with
-- and keeps is looked at once, when it is put: here for other programs, in Raptor for its own. What stays are those
-- without which a change by hand would lose a task: one that no state, no lease or no priority ever brings back.
ALTER TABLE raptor.task
    DROP CONSTRAINT IF EXISTS task_queue_check,
    DROP CONSTRAINT IF EXISTS task_service_check,
    DROP CONSTRAINT IF EXISTS task_encoding_check,
    DROP CONSTRAINT IF EXISTS task_due_check,
    DROP CONSTRAINT IF EXISTS task_created_check,
    DROP CONSTRAINT IF EXISTS task_attempts_check,
    DROP CONSTRAINT IF EXISTS task_max_attempts_check,
    DROP CONSTRAINT IF EXISTS task_key_check,
    DROP CONSTRAINT IF EXISTS task_active_s_check,
    DROP CONSTRAINT IF EXISTS task_timeout_s_check,
    DROP CONSTRAINT IF EXISTS task_check;  -- data or body

-- For the other programs: refuses a statement that puts what makes no sense, and wakes workers, with one notification
-- for each queue. A store that does both itself is quiet.
CREATE OR REPLACE FUNCTION raptor.tell_of_tasks() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    wrong text[];  -- a column, and what it may hold
BEGIN
    SELECT w.of INTO wrong FROM put AS p, LATERAL (SELECT CASE
        WHEN octet_length(p.queue) > 400 THEN ARRAY['queue', '400 bytes at most']
        WHEN p.service !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]*$' OR length(p.service) > 100
            THEN ARRAY['service', '1 to 100 letters, digits, ''_'', ''.'' and ''-'', the first a letter, a digit or ''_''']
        WHEN (p.data IS NULL) = (p.body IS NULL) THEN ARRAY['data', 'JSON, or NULL if there is a body']
        WHEN p.encoding <> 'utf8' THEN ARRAY['encoding', '''utf8'' or NULL']
        WHEN NOT isfinite(p.due) THEN ARRAY['due', 'a time']
        WHEN NOT isfinite(p.created) THEN ARRAY['created', 'a time']
        WHEN p.attempts < 0 THEN ARRAY['attempts', '0 or more']
        WHEN p.max_attempts <= 0 THEN ARRAY['max_attempts', '1 or more, or NULL for no end']
        WHEN length(p.key) > 255 THEN ARRAY['key', '255 characters at most']
        WHEN NOT (p.active_s >= 0 AND p.active_s < 'infinity') THEN ARRAY['active_s', 'seconds, or NULL']
        WHEN NOT (p.timeout_s >= 0 AND p.timeout_s < 'infinity') THEN ARRAY['timeout_s', 'seconds, or NULL']
        END) AS w (of) WHERE w.of IS NOT NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a task makes no sense: its % is %', wrong[1], wrong[2] USING ERRCODE = 'check_violation',
            SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, COLUMN = wrong[1];
    END IF;
    PERFORM pg_notify('raptor.news', 't ' || extract(epoch FROM min(due)) || ' ' || queue)
    FROM put WHERE state = 'ready' GROUP BY queue;
    RETURN NULL;
END
$$;

-- Room for both of the versions that a task adds, when it is taken and when it ends, in the page that it is in.
ALTER TABLE raptor.task SET (fillfactor = 45);

-- What a put gave, kept in the page with its mark: one whose answer is lost has it told again.
ALTER TABLE raptor.mark ADD COLUMN told bigint[];
ALTER TABLE raptor.mark ALTER COLUMN told SET STORAGE MAIN;
