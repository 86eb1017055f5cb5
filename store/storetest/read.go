package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

func scan(t *testing.T, o Opened) {
	var overdue []holdfast.AccountID
	for n := range 7 {
		c := fresh(fmt.Sprintf("overdue %d", n))
		c.NewReservations = []*holdfast.Reservation{reservation(1), reservation(2)}
		must(t, save(t, o.Store, c))
		overdue = append(overdue, c.Account.ID)
	}
	slices.SortFunc(overdue, func(a, b holdfast.AccountID) int { return strings.Compare(a.String(), b.String()) })
	later, ended := fresh("later"), fresh("ended")
	later.NewReservations, ended.NewReservations = []*holdfast.Reservation{reservation(5)}, []*holdfast.Reservation{released(1)}
	must(t, save(t, o.Store, later, ended))

	due := store.Due{At: reservation(2).ExpiresAt, Limit: 3}
	var found []holdfast.AccountID
	for {
		page, err := o.Store.Scan(t.Context(), due)
		must(t, err)
		if len(page) == 0 {
			break
		}
		if len(page) > due.Limit {
			t.Fatalf("%d accounts; the limit was %d", len(page), due.Limit)
		}
		found = append(found, page...)
		due.After = page[len(page)-1]
	}
	same(t, "all pages", found, overdue)
	none, err := o.Store.Scan(t.Context(), store.Due{At: reservation(1).ExpiresAt.Add(-1000), Limit: 3})
	must(t, err)
	same(t, "a microsecond before the first end", none, nil)

	// A hint may be old: what the scan found is looked at again under the lock.
	w := store.Want{Account: overdue[0], OverdueAt: due.At}
	state := load(t, o.Store, w)[0]
	settled := fresh(state.Account.Name)
	settled.Account.Version = 1
	settled.Reservations = []*holdfast.Reservation{released(1), released(2)}
	must(t, save(t, o.Store, settled))
	same(t, "the recheck", load(t, o.Store, w)[0].Reservations, nil)
	first, err := o.Store.Scan(t.Context(), store.Due{At: due.At, Limit: 1})
	must(t, err)
	same(t, "the scan afterwards", first, overdue[1:2])
}

func read(t *testing.T, s store.Store, q store.Query) store.Page {
	t.Helper()
	if q.Project == "" {
		q.Project = project
	}
	page, err := s.Read(t.Context(), q)
	must(t, err)
	return page
}

var lists = []store.QueryKind{store.QueryReservations, store.QueryGrants, store.QueryEntries}

func pageOfProject(t *testing.T, o Opened) {
	must(t, save(t, o.Store, everything("ann")))
	for _, k := range append(lists, store.QueryState) {
		ann := store.Query{Kind: k, Account: accountID("ann"), Limit: 10}
		if page := read(t, o.Store, ann); len(page.Reservations)+len(page.Grants)+len(page.Entries) == 0 && page.State == nil {
			t.Errorf("%s of the account: nothing", k)
		}
		stranger, nobody := ann, ann
		stranger.Project = "another"
		nobody.Account = accountID("nobody")
		same(t, string(k)+" by another project", read(t, o.Store, stranger), store.Page{})
		same(t, string(k)+" of an unknown account", read(t, o.Store, nobody), store.Page{})
	}
}

// places are the rows of a page, in one form for every list.
func places(page store.Page) (found []string) {
	for _, r := range page.Reservations {
		found = append(found, r.ID.String())
	}
	for _, g := range page.Grants {
		found = append(found, g.ID.String())
	}
	for _, e := range page.Entries {
		found = append(found, fmt.Sprint(e.No))
	}
	return found
}

func paging(t *testing.T, o Opened) {
	const rows = 7
	add := func(version int64, n int) {
		c := fresh("ann")
		c.Account.Version = version
		g := grant(n)
		g.CreatedAt = at(n / 2) // two at a time: the id decides
		c.NewGrants, c.NewReservations, c.Entries = []*holdfast.Grant{g}, []*holdfast.Reservation{reservation(n)}, []holdfast.Entry{entry(int64(n))}
		if n%2 == 0 {
			c.NewReservations = []*holdfast.Reservation{released(n)}
		}
		must(t, save(t, o.Store, c))
	}
	for n := range rows {
		add(int64(n), n+1)
	}
	wanted := map[store.QueryKind][]string{}
	for n := rows; n > 0; n-- {
		for _, k := range lists {
			place := id(n).String()
			if k == store.QueryEntries {
				place = fmt.Sprint(n)
			}
			wanted[k] = append(wanted[k], place)
		}
	}
	version := int64(rows)
	for _, k := range lists {
		for _, limit := range []int{1, 2, 3, rows - 1, rows, rows + 1} {
			var found []string
			q := store.Query{Kind: k, Account: accountID("ann"), Limit: limit}
			for pages := 0; ; pages++ {
				page := read(t, o.Store, q)
				found = append(found, places(page)...)
				if q.Cursor = page.Next; page.Next == "" {
					break
				}
				if len(places(page)) != limit || int64(pages) > version {
					t.Fatalf("%s by %d: %d rows and yet another page", k, limit, len(places(page)))
				}
				if limit == 2 { // a newer row while somebody is leafing
					version++
					add(version-1, int(version))
				}
			}
			from := slices.Index(found, wanted[k][0])
			same(t, fmt.Sprintf("%s by %d", k, limit), found[from:], wanted[k])
		}
	}
}

func filters(t *testing.T, o Opened) {
	c := fresh("ann")
	running, keyed := reservation(3), released(4)
	running.State, running.Key, keyed.Key = holdfast.Running, "m1", "m1"
	c.NewReservations = []*holdfast.Reservation{reservation(1), released(2), running, keyed, reservation(5)}
	must(t, save(t, o.Store, c))
	for name, test := range map[string]struct {
		query  store.Query
		wanted []int
	}{
		"all":                      {store.Query{}, []int{5, 4, 3, 2, 1}},
		"reserved":                 {store.Query{State: holdfast.Reserved}, []int{5, 1}},
		"running":                  {store.Query{State: holdfast.Running}, []int{3}},
		"released":                 {store.Query{State: holdfast.Released}, []int{4, 2}},
		"expired":                  {store.Query{State: holdfast.Expired}, nil},
		"unknown state":            {store.Query{State: "lost"}, nil},
		"key":                      {store.Query{Key: "m1"}, []int{4, 3}},
		"key and state":            {store.Query{Key: "m1", State: holdfast.Running}, []int{3}},
		"unknown key":              {store.Query{Key: "m"}, nil},
		"one":                      {store.Query{Reservation: id(2)}, []int{2}},
		"one in another state":     {store.Query{Reservation: id(2), State: holdfast.Running}, nil},
		"one with another key":     {store.Query{Reservation: id(2), Key: "m1"}, nil},
		"one that is not there":    {store.Query{Reservation: id(9)}, nil},
		"a percent sign as a key":  {store.Query{Key: "%"}, nil},
		"an injection in the key":  {store.Query{Key: "' OR 1=1 --"}, nil},
		"an injection as the kind": {store.Query{State: "' OR 1=1 --"}, nil},
	} {
		q := test.query
		q.Kind, q.Account, q.Limit = store.QueryReservations, accountID("ann"), 10
		var wanted []string
		for _, n := range test.wanted {
			wanted = append(wanted, id(n).String())
		}
		same(t, name, places(read(t, o.Store, q)), wanted)
		if len(wanted) > 1 {
			q.Limit = 1
			page := read(t, o.Store, q)
			same(t, name+", first page", places(page), wanted[:1])
			q.Cursor = page.Next
			same(t, name+", second page", places(read(t, o.Store, q)), wanted[1:2])
		}
	}
	same(t, "the row itself", read(t, o.Store, store.Query{Kind: store.QueryReservations, Account: accountID("ann"), Reservation: id(4), Limit: 1}).Reservations,
		[]*holdfast.Reservation{keyed})
}

func readState(t *testing.T, o Opened) {
	written := everything("ann")
	must(t, save(t, o.Store, written))
	page := read(t, o.Store, store.Query{Kind: store.QueryState, Account: accountID("ann")})
	same(t, "the state", page.State, load(t, o.Store, want("ann"))[0])
	if len(page.State.Grants) != 2 || page.State.Account.Version != 1 {
		t.Errorf("version %d with %d grants; wanted the stored account and its open grants", page.State.Account.Version, len(page.State.Grants))
	}
	all := read(t, o.Store, store.Query{Kind: store.QueryGrants, Account: accountID("ann"), Limit: 10})
	slices.Reverse(written.NewGrants)
	same(t, "open and closed grants", all.Grants, written.NewGrants)
}

func hostileCursors(t *testing.T, o Opened) {
	must(t, save(t, o.Store, everything("ann"), everything("bob")))
	given := map[store.QueryKind]string{}
	for _, k := range lists {
		given[k] = read(t, o.Store, store.Query{Kind: k, Account: accountID("ann"), Limit: 1}).Next
	}
	for _, k := range lists {
		hostile := []string{
			" ", "x", "0", "-1", "AAAA", "null", "%00", "\x00", "\xff\xfe", "' OR 1=1 --", "..", "ÿÿÿÿ", given[k] + "A", given[k] + "=", given[k] + "\n",
			given[k][1:], strings.ToUpper(given[k]) + "_", strings.Repeat("A", 43), strings.Repeat("A", 1<<20),
		}
		for other, cursor := range given {
			if other != k {
				hostile = append(hostile, cursor)
			}
		}
		check := func(account, cursor string) {
			t.Helper()
			page, err := o.Store.Read(t.Context(), store.Query{Kind: k, Project: project, Account: accountID(account), Limit: 10, Cursor: cursor})
			kind(t, err, store.Rejected)
			if !errors.Is(err, store.ErrCursor) {
				t.Errorf("%s with cursor %.20q: %v is not ErrCursor", k, cursor, err)
			}
			same(t, "the page", page, store.Page{})
		}
		for _, cursor := range hostile {
			check("ann", cursor)
		}
		check("bob", given[k])
	}
}

func wrongQueries(t *testing.T, o Opened) {
	must(t, save(t, o.Store, everything("ann")))
	for _, q := range []store.Query{
		{Kind: store.QueryEntries, Limit: 0},
		{Kind: store.QueryEntries, Limit: -1},
		{Kind: store.QueryGrants, Limit: holdfast.MaxPage + 1},
		{Kind: "", Limit: 1},
		{Kind: "accounts", Limit: 1},
	} {
		q.Project, q.Account = project, accountID("ann")
		_, err := o.Store.Read(t.Context(), q)
		kind(t, err, store.Rejected)
		if errors.Is(err, store.ErrCursor) {
			t.Errorf("kind %q, limit %d: this is not about a cursor", q.Kind, q.Limit)
		}
	}
	if page := read(t, o.Store, store.Query{Kind: store.QueryEntries, Account: accountID("ann"), Limit: holdfast.MaxPage}); len(page.Entries) != 2 || page.Next != "" {
		t.Errorf("the largest page: %d entries, next %q", len(page.Entries), page.Next)
	}
}
