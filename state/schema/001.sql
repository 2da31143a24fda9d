-- raptor.sqlite. A `record` is JSON with its checksum; the other columns are read out of it.

-- Schedulers as they were asked for

CREATE TABLE definitions (
    key TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT;

-- The ledger: runs

CREATE TABLE run (
    id TEXT PRIMARY KEY,
    record TEXT NOT NULL,
    service TEXT AS (record ->> '$.service'),
    scheduler TEXT AS (record ->> '$.scheduler'),
    planned REAL AS (record ->> '$.planned'),
    attempt INTEGER AS (record ->> '$.attempt'),
    start REAL AS (record ->> '$.start'),
    "end" REAL AS (record ->> '$.end'),
    outcome TEXT AS (record ->> '$.outcome'),
    info TEXT AS (record ->> '$.info')
) STRICT;

CREATE INDEX run_by_start ON run (start, id);
CREATE INDEX run_by_service ON run (service, start, id);
CREATE INDEX run_failed ON run (start, id) WHERE outcome <> 'ok';

-- The ledger: slots

CREATE TABLE slot (
    record TEXT NOT NULL,
    service TEXT AS (record ->> '$.service'),
    planned REAL AS (record ->> '$.planned'),
    last REAL AS (record ->> '$.last'),
    verdict TEXT AS (record ->> '$.verdict'),
    reason TEXT AS (record ->> '$.reason'),
    run TEXT AS (record ->> '$.run')
) STRICT;

CREATE UNIQUE INDEX slot_by_planned ON slot (service, planned);
CREATE INDEX slot_by_last ON slot (service, last, planned);
CREATE INDEX slot_by_age ON slot (last);
