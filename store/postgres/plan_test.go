package postgres

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// plans are the statements that a decision, a page or the sweeper waits for, and the indexes that they are meant to use:
// no other, and no table from end to end.
var plans = map[string]string{
	lockAccounts:             "accounts_pkey",
	lockFreeAccounts:         "accounts_pkey",
	touchAccount:             "accounts_pkey",
	selectThere:              "accounts_pkey",
	deleteMade:               "accounts_pkey",
	selectOpenGrants:         "open_grants",
	selectGrantsOfState:      "open_grants",
	selectReservations:       "reservations_pkey",
	selectGrants:             "grants_pkey",
	selectOverdue:            "accounts_pkey live_reservations",
	selectAnswers:            "answers_pkey",
	selectAccount:            "accounts_pkey",
	selectReservationsOnPage: "reservations_pkey",
	selectLiveReservations:   "live_reservations",
	selectSurfaces:           "live_reservations",
	selectReservationOnPage:  "reservations_pkey",
	selectGrantsOnPage:       "grants_pkey",
	selectEntriesOnPage:      "entries_pkey",
	selectEvents:             "outbox_pkey",
	selectPending:            "accounts_pkey outbox_pkey",
	selectPendingEntries:     "entries_pkey outbox_pkey",
	selectPendingPayments:    "outbox_pkey payments_pkey",
	publishEvents:            "outbox_pkey published_event_ids",
	selectPublished:          "accounts_pkey published_events_pkey",
	selectPosition:           "published_event_ids",
	queueDeliveries:          "endpoints_pkey published_events_pkey",
	selectDueDeliveries:      "accounts_pkey due_deliveries endpoints_pkey published_events_pkey",
	settleDeliveries:         "deliveries_pkey",
	promoteLast:              "deliveries_pkey endpoints_pkey queued_deliveries",
	promoteAt:                "deliveries_pkey endpoints_pkey queued_deliveries",
	promoteAll:               "endpoints_pkey queued_deliveries",
	reviveDead:               "dead_deliveries endpoints_pkey",
	selectDeliveries:         "accounts_pkey deliveries_pkey endpoints_pkey published_events_pkey",
	selectDue:                "live_reservations",
	noticesOfWork:            "notices_of_work",
	noticesOfAccounts:        "notices_pkey",
	tellNotices:              "accounts_pkey notices_pkey",
	putOffNotices:            "notices_pkey",
	dropNotices:              "notices_pkey",
	deleteNotices:            "notices_pkey",
	deleteEvents:             "outbox_pkey",
	selectClaimable:          "jobs_pkey",
	selectLost:               "jobs_pkey",
	selectQueues:             "jobs_pkey",
	selectPayloads:           "payloads_pkey",
	deletePayloads:           "payloads_pkey",
	updateJobs:               "jobs_pkey",
	deleteJobs:               "jobs_pkey",
	selectAccounts:           "accounts_pkey",
	selectAllGrants:          "grants_pkey",
	selectAllReservations:    "reservations_pkey",
	selectAllEntries:         "entries_pkey",
	updateAccounts:           byPlace,
	updateGrantsText:         byPlace,
	updateReservationsText:   byPlace,
	updatePlainReservations:  byPlace,
	lockLines:                "telegram_updates_pkey",
	insertUpdates:            "telegram_lines_pkey waiting_updates",
	claimLines:               "due_lines",
	dropEmptyLines:           "due_lines waiting_updates",
	countAttempts:            "due_lines waiting_updates",
	lockLine:                 "telegram_lines_pkey telegram_updates_pkey",
	settleUpdate:             "telegram_lines_pkey telegram_updates_pkey",
	dropEmptyLine:            "telegram_lines_pkey waiting_updates",
	freeLine:                 "telegram_lines_pkey waiting_updates",
	selectNotes:              "telegram_notes_pkey",
}

// byPlace: no index at all.
const byPlace = ""

var (
	parameter = regexp.MustCompile(`\$\d+`)
	usedIndex = regexp.MustCompile(`(?:Index Scan|Index Only Scan)(?: Backward)? using (\w+)|Bitmap Index Scan on (\w+)`)
)

func TestStatementsUseTheIndexTheyAreMeantForHoweverLargeTheTablesAre(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	opened(t, url, Options{})
	// As it comes, and as many set it on quick disks.
	costs := []string{`SET LOCAL random_page_cost = 4`, `SET LOCAL random_page_cost = 1.1`}
	check := func(when string) {
		t.Helper()
		for _, cost := range costs {
			conn := raw(t, url) // plans are made once per connection
			execute(t, conn, `BEGIN`)
			execute(t, conn, cost)
			execute(t, conn, setReading)
			n := 0
			for text, wanted := range plans {
				n++
				plan := explained(t, conn, fmt.Sprint("statement_", n), text)
				used := map[string]bool{}
				for _, found := range usedIndex.FindAllStringSubmatch(plan, -1) {
					used[found[1]+found[2]] = true
				}
				got := strings.Join(slices.Sorted(maps.Keys(used)), " ")
				// A scan of an index without a condition reads all of it.
				scans, conditions := len(usedIndex.FindAllString(plan, -1)), strings.Count(plan, "Index Cond: ")
				if got != wanted || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "JIT:") || scans != conditions {
					t.Errorf("%s, %s:\n%s\nuses %s; wanted %s\n%s", when, cost, text, got, wanted, plan)
				}
			}
			execute(t, conn, `ROLLBACK`)
		}
	}
	check("with empty tables")
	conn := raw(t, url)
	execute(t, conn, `ANALYZE`)
	check("with empty tables that were analysed")
	fill(t, conn)
	check("with large tables that were never analysed since")
	execute(t, conn, `ANALYZE`)
	check("with large tables")
	churn(t, conn)
	check("with indexes that have grown and are almost empty")
	execute(t, conn, `ANALYZE`)
	check("with indexes that have grown and are almost empty, and the planner knows it")
	execute(t, conn, `VACUUM ANALYZE`)
	check("with indexes that have grown and are almost empty, after a vacuum")
}

// explained is the plan that the store's settings make of a statement, whatever its parameters are.
func explained(t *testing.T, conn *pgx.Conn, name, text string) string {
	t.Helper()
	numbers := map[string]bool{}
	for _, found := range parameter.FindAllString(text, -1) {
		numbers[found] = true
	}
	execute(t, conn, fmt.Sprintf("PREPARE %s AS %s", name, text))
	var arguments string
	for n := range len(numbers) {
		switch {
		case strings.Contains(text, fmt.Sprintf("$%d::uuid[]", n+1)): // as many as a batch has
			arguments += ", '{" + strings.TrimSuffix(strings.Repeat(id(n).String()+",", 250), ",") + "}'"
		default:
			arguments += ", NULL"
		}
	}
	if arguments != "" {
		arguments = "(" + arguments[len(", "):] + ")"
	}
	rows, err := conn.Query(t.Context(), fmt.Sprintf("EXPLAIN EXECUTE %s%s", name, arguments), pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return strings.Join(lines, "\n")
}

// fill makes a thousand accounts with a history: of ten grants one is open, of forty reservations two are live.
func fill(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for _, text := range []string{
		`INSERT INTO holdfast.accounts (account_id, version, last_entry, active, blocked, notices, created_at, decided_at, project, name, plan, language, time_zone)
			SELECT md5('account' || a)::uuid, 1, 40, 2, false, true, now(), now(), 'shop', 'account ' || a, '', '', '' FROM generate_series(1, 1000) a`,
		`INSERT INTO holdfast.grants (account_id, grant_id, granted, reserved, used, voided, starts_at, created_at, priority, open, unit, source, allowance)
			SELECT md5('account' || a)::uuid, md5('grant' || g)::uuid, 10, 0, 10, 0, now(), now(), 10, g = 10, 'credit', 'purchase', ''
			FROM generate_series(1, 1000) a, generate_series(1, 10) g`,
		`INSERT INTO holdfast.reservations (account_id, reservation_id, quantity, price_amount, reserved, used, unbilled, late_used, refunded,
				catalog_version, ttl_microseconds, created_at, expires_at, ended_at, attempts, state, feature, price_unit, allocation_grants,
				allocation_sources, allocation_amounts, key, surface, cause, worker, lease_token)
			SELECT md5('account' || a)::uuid, md5('reservation' || r)::uuid, 1, 1, 1, 0, 0, 0, 0, 1, 1, now(), now() + '1h', CASE WHEN r > 2 THEN now() END, 0,
				CASE WHEN r > 2 THEN 'released' ELSE 'reserved' END, 'image', 'credit', ARRAY[md5('grant1')::uuid], ARRAY['purchase'], ARRAY[1, 0, 0], 'k' || r, '', '', '', ''
			FROM generate_series(1, 1000) a, generate_series(1, 40) r`,
		`INSERT INTO holdfast.jobs (account_id, reservation_id, created_at, claimable_at, last_attempt, project, queue)
			SELECT md5('account' || a)::uuid, md5('reservation' || r)::uuid, now(), now(), r = 2, 'shop', 'image.standard'
			FROM generate_series(1, 1000) a, generate_series(1, 2) r`,
		`INSERT INTO holdfast.payloads (account_id, reservation_id, payload)
			SELECT md5('account' || a)::uuid, md5('reservation' || r)::uuid, '{}' FROM generate_series(1, 1000) a, generate_series(1, 2) r`,
		`INSERT INTO holdfast.entries (account_id, entry_no, effective_at, recorded_at, available, reserved, kind, unit, key, actor, reason)
			SELECT md5('account' || a)::uuid, n, now(), now(), 0, 0, 'reserve', 'credit', '', '', '' FROM generate_series(1, 1000) a, generate_series(1, 40) n`,
		`INSERT INTO holdfast.answers (account_id, command_id, fingerprint, recorded_at, key, outcome)
			SELECT md5('account' || a)::uuid, md5('c')::uuid, md5('f')::uuid, now(), 'k' || n, '{}' FROM generate_series(1, 1000) a, generate_series(1, 40) n`,
		`INSERT INTO holdfast.outbox (account_id, event_id, written, entry_no, figure, at, kind)
			SELECT md5('account' || a)::uuid, md5('event' || n)::uuid, n, n, 0, now(), 'reservation.reserve' FROM generate_series(1, 1000) a, generate_series(1, 40) n`,
		`INSERT INTO holdfast.notices (account_id, slot, event_id, due_at, reservation_id, kind)
			SELECT md5('account' || a)::uuid, md5('slot' || n)::uuid, md5('notice' || n)::uuid, now(), CASE WHEN n > 1 THEN md5('reservation' || n)::uuid END, 'notice.queued'
			FROM generate_series(1, 1000) a, generate_series(1, 3) n`,
		`INSERT INTO holdfast.published_events (project, position, account_id, event_id, at, published_at, kind, data)
			SELECT 'shop', a * 40 + n, md5('account' || a)::uuid, md5('event' || n)::uuid, now(), now(), 'reservation.reserve', '{}'
			FROM generate_series(1, 1000) a, generate_series(1, 40) n`,
		`INSERT INTO holdfast.endpoints (endpoint_id, project, created_at, cursor, epoch, version, paused, paused_reason, url, secrets, note)
			SELECT 'e' || n, 'shop', now(), 100000, 0, 0, false, '', '', ARRAY['s'], '' FROM generate_series(1, 5) n`,
		`INSERT INTO holdfast.deliveries (endpoint_id, position, account_id, epoch, next_at, attempts, status, state, problem)
			SELECT 'e' || n, a * 40 + n, md5('account' || a)::uuid, 0, CASE n WHEN 2 THEN now() END, 1, 0,
				CASE n WHEN 1 THEN 'dead' WHEN 2 THEN 'pending' WHEN 3 THEN 'waiting' ELSE 'delivered' END, ''
			FROM generate_series(1, 1000) a, generate_series(1, 5) n`,
		`INSERT INTO holdfast.telegram_updates (bot, update_id, line, received_at, ended_at, attempts, state, raw)
			SELECT 'b', a * 40 + n, 'person ' || a, now(), CASE WHEN n > 2 THEN now() END, 1, CASE WHEN n > 2 THEN 'done' ELSE 'waiting' END, '{}'
			FROM generate_series(1, 1000) a, generate_series(1, 40) n`,
		`INSERT INTO holdfast.telegram_lines (bot, line, due_at) SELECT 'b', 'person ' || a, now() FROM generate_series(1, 1000) a`,
		`INSERT INTO holdfast.telegram_notes (bot, key, at, value) SELECT 'b', 'status/' || n, now(), '' FROM generate_series(1, 1000) n`,
	} {
		execute(t, conn, text)
	}
}

// churn lets a lot of work come and go, so that the indexes of what is under way have grown and hold next to nothing. The
// planner then believes that a row of them costs many pages, and that an index with the whole history in it is cheaper.
func churn(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	few := ` WHERE account_id IN (SELECT md5('account' || a)::uuid FROM generate_series(1, 30) a) AND `
	for _, text := range []string{
		`DELETE FROM holdfast.reservations WHERE reservation_id NOT IN (SELECT md5('reservation' || r)::uuid FROM generate_series(1, 5) r)`,
		`UPDATE holdfast.reservations SET ended_at = NULL, state = 'reserved', expires_at = now() + '2h'`,
		`UPDATE holdfast.reservations SET expires_at = now() + '3h'`,
		`UPDATE holdfast.reservations SET expires_at = now() + '4h'`,
		`UPDATE holdfast.reservations SET ended_at = now(), state = 'released'`,
		`UPDATE holdfast.reservations SET ended_at = NULL, state = 'reserved'` + few + `reservation_id = md5('reservation1')::uuid`,
		`DELETE FROM holdfast.grants WHERE grant_id NOT IN (SELECT md5('grant' || r)::uuid FROM generate_series(1, 5) r)`,
		`UPDATE holdfast.grants SET open = true`,
		`UPDATE holdfast.grants SET open = true, created_at = now() - interval '1h'`,
		`UPDATE holdfast.grants SET open = true, created_at = now() - interval '2h'`,
		`UPDATE holdfast.grants SET open = false`,
		`UPDATE holdfast.grants SET open = true` + few + `grant_id = md5('grant1')::uuid`,
		`UPDATE holdfast.notices SET reservation_id = slot, due_at = now() - interval '1h'`,
		`UPDATE holdfast.notices SET due_at = now() - interval '2h'`,
		`UPDATE holdfast.notices SET due_at = now() - interval '3h'`,
		`UPDATE holdfast.notices SET reservation_id = NULL`,
		`UPDATE holdfast.notices SET reservation_id = slot` + few + `slot = md5('slot1')::uuid`,
		`UPDATE holdfast.deliveries SET next_at = now(), state = 'pending'`,
		`UPDATE holdfast.deliveries SET next_at = now() + interval '1h'`,
		`UPDATE holdfast.deliveries SET next_at = now() + interval '2h'`,
		`UPDATE holdfast.deliveries SET state = 'dead', next_at = NULL`,
		`UPDATE holdfast.deliveries SET next_at = NULL, state = 'delivered'`,
		`UPDATE holdfast.deliveries SET next_at = now(), state = 'pending'` + few + `endpoint_id = 'e1'`,
		`UPDATE holdfast.deliveries SET state = 'dead', next_at = NULL` + few + `endpoint_id = 'e2'`,
		`UPDATE holdfast.telegram_updates SET ended_at = NULL, state = 'waiting'`,
		`UPDATE holdfast.telegram_updates SET received_at = now() + interval '1h'`,
		`UPDATE holdfast.telegram_updates SET received_at = now() + interval '2h'`,
		`UPDATE holdfast.telegram_updates SET ended_at = now(), state = 'done'`,
		`UPDATE holdfast.telegram_updates SET ended_at = NULL, state = 'waiting' WHERE update_id < 80`,
	} {
		execute(t, conn, text)
	}
}
