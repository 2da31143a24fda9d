-- raptor.sqlite, version 2: task queues

-- Tasks. Columns of their own rather than a sealed record, because a take and a settle change few of many. What they
-- may hold is checked before it comes here: a CHECK costs a fifth of a take.
CREATE TABLE task (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice
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

-- Read one range for each priority: ordering by priority first would walk over every future row.
CREATE INDEX task_ready ON task (queue, suspect, priority, due) WHERE state = 'ready';
-- The state stands in these too, so that a repair knows their entries from those of other indexes.
CREATE INDEX task_taken ON task (queue, state, lease) WHERE state = 'taken';
CREATE INDEX task_dead ON task (queue, state) WHERE state = 'dead';
CREATE INDEX task_ended ON task (ended, queue, state) WHERE state IN ('done', 'cancelled');
CREATE INDEX task_key ON task (service, "key") WHERE "key" IS NOT NULL;
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;

-- Queues as they were set
CREATE TABLE lines (
    key TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT;

-- How much of its rate each queue has used: [time, starts] of the last span, as JSON
CREATE TABLE pace (
    queue TEXT PRIMARY KEY,
    starts TEXT NOT NULL
) STRICT, WITHOUT ROWID;
