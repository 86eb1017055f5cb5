package acceptance

import (
	"database/sql"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// tamper changes the database behind the product's back.
func tamper(t *testing.T, db, statement string) {
	t.Helper()
	connection, err := sql.Open("sqlite", strings.TrimPrefix(db, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	result, err := connection.Exec(statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("nothing was changed: %v", err)
	}
}
