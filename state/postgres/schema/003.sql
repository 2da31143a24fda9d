-- Raptor on PostgreSQL, version 3: to take a task changes no index.

-- PostgreSQL writes a row anew in each of its indexes if a single one of them looks at what has changed. So none of them
-- looks at `state` any more, but at where a row stands: that is the same when it is taken. What is taken is found by its
-- number, in a list that its node writes with each take; `listed` is the fence of that take. Stray is what was taken
-- without one, by a node of the version before or by hand.
ALTER TABLE raptor.task
    ADD COLUMN listed bigint,
    ADD COLUMN shelf text GENERATED ALWAYS AS (CASE state
        WHEN 'ready' THEN 'open'
        WHEN 'taken' THEN CASE WHEN fence = listed THEN 'open' ELSE 'stray' END
        ELSE state END) STORED;

-- What each lane of a node has taken: a row for a take, and the same one again when all of it has ended.
CREATE TABLE raptor.wave (
    lane text NOT NULL,
    place integer NOT NULL,
    ids bigint[] NOT NULL,
    seen timestamptz NOT NULL,
    PRIMARY KEY (lane, place)
) WITH (fillfactor = 50);

DROP INDEX IF EXISTS raptor.task_ready, raptor.task_taken, raptor.task_dead, raptor.task_ended, raptor.task_key_pending;
CREATE INDEX task_open ON raptor.task (queue, suspect, priority, due, id) WHERE shelf = 'open';
CREATE INDEX task_stray ON raptor.task (queue) WHERE shelf = 'stray';
CREATE INDEX task_dead ON raptor.task (queue) WHERE shelf = 'dead';
CREATE INDEX task_ended ON raptor.task (ended) WHERE shelf IN ('done', 'cancelled');
CREATE UNIQUE INDEX task_key_pending ON raptor.task (service, key) WHERE key IS NOT NULL AND shelf IN ('open', 'stray');

-- For people, too.
CREATE VIEW raptor.taken AS
    SELECT t.* FROM (SELECT DISTINCT l.id FROM raptor.wave AS w, unnest(w.ids) AS l (id)) AS listed
    JOIN raptor.task AS t ON t.id = listed.id WHERE t.state = 'taken' AND t.shelf = 'open'
    UNION ALL SELECT t.* FROM raptor.task AS t WHERE t.shelf = 'stray';
