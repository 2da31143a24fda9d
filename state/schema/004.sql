-- raptor.sqlite, version 4: a checksum of what became of a task, and the last id of a task twice

ALTER TABLE stamp ADD COLUMN mirror INTEGER NOT NULL DEFAULT -1;  -- the last id counted down from -1, to compare
UPDATE stamp SET mirror = -1 - task;

-- `crc` covers what was asked from now on: all columns that a put sets. `fate` covers all others; 0 as long as nothing
-- has become of a task.
ALTER TABLE task ADD COLUMN fate INTEGER NOT NULL DEFAULT 0;

UPDATE task SET
    crc = task_asked(
        id, CAST(queue AS BLOB), CAST(service AS BLOB), typeof(data), CAST(data AS BLOB), priority, due, created,
        max_attempts, CAST("key" AS BLOB), key_until, parent, active_s, timeout_s, CAST(timing AS BLOB), crc
    ),
    fate = task_fate(
        CAST(state AS BLOB), attempts, previous, started, ended, CAST(output AS BLOB), CAST(error AS BLOB),
        CAST(reason AS BLOB), deaths, suspect, CAST(history AS BLOB), fence, CAST(owner AS BLOB), lease, unwanted
    );
