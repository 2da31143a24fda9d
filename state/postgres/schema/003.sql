-- Raptor on PostgreSQL, version 3: to take a task changes no index.

-- PostgreSQL writes a row anew in each of its indexes if a single one of them looks at what has changed. So none of them
-- looks at `state` any more, but at where a row stands: when it is taken it stays among what is ready. What is taken is
-- found by its number, in a list that its node writes with each take; `listed` is the fence of that take. What was taken
-- without one, by a node of the version before or by hand, stands apart.
ALTER TABLE raptor.task
    ADD COLUMN listed bigint,
    ADD COLUMN shelf text GENERATED ALWAYS AS (
        CASE WHEN state = 'taken' AND fence = listed THEN 'ready' ELSE state END) STORED;

-- What each lane of a node has taken: a row for a take, and the same one again when all of it has ended.
CREATE TABLE raptor.wave (
    lane text NOT NULL,
    place integer NOT NULL,
    ids bigint[] NOT NULL,
    seen timestamptz NOT NULL,
    PRIMARY KEY (lane, place)
) WITH (fillfactor = 50);

DROP INDEX IF EXISTS raptor.task_ready, raptor.task_taken, raptor.task_dead, raptor.task_ended, raptor.task_key_pending;
CREATE INDEX task_ready ON raptor.task (queue, suspect, priority, due, id) WHERE shelf = 'ready';
CREATE INDEX task_apart ON raptor.task (shelf, queue) WHERE shelf IN ('taken', 'dead');
CREATE INDEX task_ended ON raptor.task (ended) WHERE shelf IN ('done', 'cancelled');
CREATE UNIQUE INDEX task_key_pending ON raptor.task (service, key) WHERE key IS NOT NULL AND shelf IN ('ready', 'taken');

-- For people, too.
CREATE VIEW raptor.taken AS
    SELECT t.* FROM (SELECT DISTINCT l.id FROM raptor.wave AS w, unnest(w.ids) AS l (id)) AS listed
    CROSS JOIN LATERAL (SELECT t.* FROM raptor.task AS t WHERE t.id = listed.id OFFSET 0) AS t  -- by their ids, whatever
    WHERE t.state = 'taken' AND t.shelf = 'ready'
    UNION ALL SELECT t.* FROM raptor.task AS t WHERE t.shelf = 'taken';
