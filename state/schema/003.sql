-- raptor.sqlite, version 3: the last id of a task stands in the stamp, which every commit writes anyway. The table that
-- AUTOINCREMENT keeps for it cost every put a page more.

ALTER TABLE stamp ADD COLUMN task INTEGER NOT NULL DEFAULT 0;  -- no id up to this one is used again
UPDATE stamp SET task = (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'task');

ALTER TABLE task RENAME TO task_2;
CREATE TABLE task (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    service TEXT NOT NULL,
    data ANY NOT NULL,  -- JSON as text, msgpack as a blob
    state TEXT NOT NULL DEFAULT 'ready',  -- ready, taken, done, dead, cancelled
    priority INTEGER NOT NULL DEFAULT 5,  -- 0 to 9
    due REAL NOT NULL,
    created REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER DEFAULT 3,
    "key" TEXT,
    key_until REAL,
    parent INTEGER,
    active_s REAL,
    timeout_s REAL,
    timing TEXT,
    started REAL,
    previous REAL,
    ended REAL,
    output TEXT,
    error TEXT,
    reason TEXT NOT NULL DEFAULT '',
    history TEXT,
    fence INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    lease REAL,
    deaths INTEGER NOT NULL DEFAULT 0,
    suspect INTEGER NOT NULL DEFAULT 0,
    unwanted INTEGER NOT NULL DEFAULT 0,
    crc INTEGER NOT NULL  -- of what never changes but by a replacement: id, queue, service, data
) STRICT;

INSERT INTO task SELECT * FROM task_2;
DROP TABLE task_2;

-- Read one range for each priority: ordering by priority first would walk over every future row.
CREATE INDEX task_ready ON task (queue, suspect, priority, due) WHERE state = 'ready';
-- The state stands in these too, so that a repair knows their entries from those of other indexes.
CREATE INDEX task_taken ON task (queue, state, lease) WHERE state = 'taken';
CREATE INDEX task_dead ON task (queue, state) WHERE state = 'dead';
CREATE INDEX task_ended ON task (ended, queue, state) WHERE state IN ('done', 'cancelled');
CREATE INDEX task_key ON task (service, "key") WHERE "key" IS NOT NULL;
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;
