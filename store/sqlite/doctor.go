package sqlite

import (
	"context"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Doctored = (*DB)(nil)

// largeLog is more than a writer that is not kept from tidying up ever leaves in the WAL.
const largeLog = 256 << 20

// Diagnose looks at how the file is kept. What each connection of a serving process has set is asserted by that process.
func (db *DB) Diagnose(ctx context.Context) ([]store.Finding, error) {
	kept, err := db.Durability(ctx)
	if err != nil {
		return nil, err
	}
	journal := store.Finding{Check: "journal", Found: "journal_mode " + kept.JournalMode}
	if kept.JournalMode != "wal" {
		journal.Do = "keep the file on a local disk, and serve it with holdfast once: it sets WAL"
	}
	log := store.Finding{Check: "write-ahead log", Found: "there is none"}
	if info, err := os.Stat(db.path + "-wal"); err == nil {
		log.Found = fmt.Sprintf("%d MiB", info.Size()>>20)
		if info.Size() > largeLog {
			log.Do = "somebody reads the file without end, which keeps the log from being emptied: look for backups and shells that hang"
		}
	}
	return []store.Finding{journal, log}, nil
}
