package sqlite

import (
	"database/sql/driver"
	"strings"
	"testing"
)

// Every statement that a decision, a page or the sweeper waits for names the index that it is meant to use, and none
// sorts that is not meant to.
func TestStatementsUseTheIndexTheyAreMeantFor(t *testing.T) {
	db := opened(t, fresh(t), Options{})
	c, err := db.takeReader(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer db.giveReader(c)
	const (
		account     = "SEARCH accounts USING INDEX sqlite_autoindex_accounts_1 (account_id=?)"
		grant       = "SEARCH grants USING INDEX sqlite_autoindex_grants_1 (account_id=? AND grant_id=?)"
		reservation = "SEARCH reservations USING INDEX sqlite_autoindex_reservations_1 (account_id=? AND reservation_id=?)"
		sorted      = "USE TEMP B-TREE FOR "
	)
	for text, wanted := range map[string]string{
		selectAccount:           account,
		updateAccount:           account,
		selectOpenGrants:        "SEARCH grants USING INDEX open_grants (account_id=?)",
		selectGrant:             grant,
		updateGrant:             grant,
		selectReservation:       reservation,
		updateReservation:       reservation,
		selectOverdue:           "SEARCH reservations USING INDEX live_reservations (account_id=? AND expires_at<?)",
		selectAnswer:            "SEARCH answers USING INDEX sqlite_autoindex_answers_1 (account_id=? AND key=?)",
		selectDue:               "SEARCH reservations USING COVERING INDEX live_reservations (account_id>?)",
		selectReservations:      "SEARCH reservations USING INDEX sqlite_autoindex_reservations_1 (account_id=? AND reservation_id<?)",
		selectLiveReservations:  "SEARCH reservations USING INDEX live_reservations (account_id=?); " + sorted + "ORDER BY",
		selectSurfaces:          "SCAN reservations USING INDEX live_reservations; " + sorted + "GROUP BY",
		selectReservationOnPage: reservation,
		selectGrants:            "SEARCH grants USING INDEX sqlite_autoindex_grants_1 (account_id=?); " + sorted + "ORDER BY",
		selectEntries:           "SEARCH entries USING INDEX sqlite_autoindex_entries_1 (account_id=? AND entry_no<?)",
		selectEvents:            "SEARCH outbox USING INDEX sqlite_autoindex_outbox_1 (account_id=?); " + sorted + "ORDER BY",
		selectClaimable:         "SEARCH jobs USING PRIMARY KEY (account_id>?); " + sorted + "ORDER BY",
		selectLost:              "SEARCH jobs USING PRIMARY KEY (account_id>?)",
		selectQueues:            "SEARCH jobs USING PRIMARY KEY (account_id>?); " + sorted + "GROUP BY",
		selectPayload:           "SEARCH payloads USING INDEX sqlite_autoindex_payloads_1 (account_id=? AND reservation_id=?)",
		updateJob:               "SEARCH jobs USING PRIMARY KEY (account_id=? AND reservation_id=?)",
		deleteJob:               "SEARCH jobs USING PRIMARY KEY (account_id=? AND reservation_id=?)",
		deletePayload:           "SEARCH payloads USING INDEX sqlite_autoindex_payloads_1 (account_id=? AND reservation_id=?)",
		selectNextPending:       "SEARCH a USING INDEX sqlite_autoindex_accounts_1 (account_id=?); SCALAR SUBQUERY 1; SEARCH outbox USING COVERING INDEX sqlite_autoindex_outbox_1 (account_id>?)",
		selectFirstEvents:       "SEARCH outbox USING INDEX sqlite_autoindex_outbox_1 (account_id=?); " + sorted + "ORDER BY",
		selectPublished:         "SEARCH p USING INDEX sqlite_autoindex_published_events_1 (project=? AND position>?); SEARCH a USING INDEX sqlite_autoindex_accounts_1 (account_id=?) LEFT-JOIN",
		selectPosition:          "SEARCH published_events USING INDEX published_event_ids (account_id=? AND event_id=?)",
		selectDueDeliveries:     "SEARCH e USING INDEX sqlite_autoindex_endpoints_1 (endpoint_id=?); SEARCH d USING INDEX due_deliveries (endpoint_id=? AND next_at<?); SEARCH p USING INDEX sqlite_autoindex_published_events_1 (project=? AND position=?); SEARCH a USING INDEX sqlite_autoindex_accounts_1 (account_id=?) LEFT-JOIN",
		settleDelivery:          "SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (endpoint_id=? AND position=?)",
		promoteFirst:            "SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (endpoint_id=? AND position=?); SCALAR SUBQUERY 2; SEARCH deliveries USING INDEX queued_deliveries (endpoint_id=? AND account_id=? AND position<?); SCALAR SUBQUERY 1; SEARCH endpoints USING INDEX sqlite_autoindex_endpoints_1 (endpoint_id=?); SCALAR SUBQUERY 4; SEARCH deliveries USING INDEX queued_deliveries (endpoint_id=? AND account_id=? AND position<?); SCALAR SUBQUERY 3; SEARCH endpoints USING INDEX sqlite_autoindex_endpoints_1 (endpoint_id=?)",
		selectDeliveries:        "SEARCH e USING INDEX sqlite_autoindex_endpoints_1 (endpoint_id=?); SEARCH d USING INDEX sqlite_autoindex_deliveries_1 (endpoint_id=? AND position<?); SEARCH p USING INDEX sqlite_autoindex_published_events_1 (project=? AND position=?); SEARCH a USING INDEX sqlite_autoindex_accounts_1 (account_id=?) LEFT-JOIN",
		selectAccounts:          "SCAN accounts USING INDEX sqlite_autoindex_accounts_1",
		selectAllGrants:         "SEARCH grants USING INDEX sqlite_autoindex_grants_1 (account_id=?)",
		selectAllReservations:   "SEARCH reservations USING INDEX sqlite_autoindex_reservations_1 (account_id=?)",
		selectAllEntries:        "SEARCH entries USING INDEX sqlite_autoindex_entries_1 (account_id=?)",
		insertUpdate:            "SCALAR SUBQUERY 1; SEARCH telegram_updates USING COVERING INDEX waiting_updates (bot=? AND line=?)",
		selectDueLines:          "SEARCH telegram_lines USING INDEX due_lines (bot=? AND due_at<?)",
		selectFirstUpdate:       "SEARCH telegram_updates USING INDEX waiting_updates (bot=? AND line=?)",
		claimLine:               "SEARCH telegram_lines USING INDEX sqlite_autoindex_telegram_lines_1 (bot=? AND line=?)",
		settleUpdate:            "SEARCH telegram_updates USING INDEX sqlite_autoindex_telegram_updates_1 (bot=? AND update_id=?); SCALAR SUBQUERY 1; SEARCH telegram_lines USING INDEX sqlite_autoindex_telegram_lines_1 (bot=? AND line=?)",
		selectNotes:             "SEARCH telegram_notes USING INDEX sqlite_autoindex_telegram_notes_1 (bot=? AND key>? AND key<?)",
		selectKey:               "SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (hash=?)",
	} {
		var steps []string
		arguments := make([]driver.Value, strings.Count(text, "?")) // more than enough where a number is used twice
		err := c.query(t.Context(), "EXPLAIN QUERY PLAN "+text, func(r *row) error {
			steps = append(steps, r.values[3].(string))
			return nil
		}, arguments...)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := strings.Join(steps, "; "); got != wanted {
			t.Errorf("%s\n\tgot    %s\n\twanted %s", text, got, wanted)
		}
	}
}
