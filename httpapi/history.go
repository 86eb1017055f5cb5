package httpapi

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

func getBalance(c *call) answer {
	read := c.query()
	name := c.request.PathValue("account")
	c.validName(name)
	now := c.api.Engine.Now()
	at := now
	if text, ok := read[asOf.name]; ok {
		var hint string
		at, hint = readTime(value{kind: isText, text: text})
		switch {
		case hint != "":
			c.wrong(asOf.name, hint+", with a + escaped as %2B")
		case at.After(now):
			c.wrong(asOf.name, "use a moment that has passed")
		}
	}
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	moment := at
	if at.Equal(now) {
		moment = time.Time{}
	}
	view, err := c.api.Engine.ViewAt(c.context(), c.key.Project, name, moment)
	if err != nil {
		return c.failed(err)
	}
	return answer{status: http.StatusOK, body: Balances{Account: name, MergedInto: mergedInto(name, view), AsOf: at, Balances: balancesOf(view)}}
}

func explain(c *call) answer {
	read := c.query()
	name := c.request.PathValue("account")
	reserve := holdfast.Reserve{Feature: read[ofFeature.name], DryRun: true}
	for _, written := range sortedKeys(read) {
		switch before, kind, ofKind := kindOf(written); {
		case written == ofQuantity.name:
			reserve.Quantity = given(c.integer(written, read[written]))
		case ofKind && before == ofUsage.name:
			if reserve.Usage == nil {
				reserve.Usage = map[string]holdfast.Amount{}
			}
			reserve.Usage[kind] = *c.integer(written, read[written])
		}
	}
	command := holdfast.Command{Project: c.key.Project, Account: name, Do: reserve}
	if found := merge(c.problems, shape(command), c.from.keyField()); len(found) > 0 {
		return c.invalid(found)
	}
	view, err := c.api.Engine.ViewAt(c.context(), c.key.Project, name, time.Time{})
	if err != nil {
		return c.failed(err)
	}
	x, found, err := c.api.Engine.Explain(c.context(), command)
	switch {
	case err != nil:
		return c.failed(err)
	case len(found) > 0:
		return c.invalid(found)
	}
	c.account = view.Account.ID
	language := c.language(view.Account.Language)
	shown := Explanation{
		Account: name, MergedInto: mergedInto(name, view), Plan: view.Plan, Feature: x.Feature, Allowed: x.Allowed, Reason: known(string(x.Reason)),
	}
	for i := range x.Steps {
		shown.Steps = append(shown.Steps, c.step(language, &x.Steps[i]))
	}
	return answer{status: http.StatusOK, body: shown}.with("Content-Language", language)
}

func (c *call) step(language string, s *holdfast.Step) ExplainedStep {
	shown := ExplainedStep{
		Check: s.Check, Passed: s.Passed, Text: c.api.Texts.Step(language, c.catalog(), *s), Unit: known(s.Unit), Pockets: []Pocket{},
	}
	switch s.Check {
	case holdfast.CheckPrice:
		shown.Needed, shown.Available, shown.Held = &s.Needed, &s.Available, &s.Held
	case holdfast.CheckSlot:
		shown.Active, shown.MaxActive = &s.Active, &s.MaxActive
	}
	for _, p := range s.Pockets {
		pocket := Pocket{
			Grant: holdfast.GrantRef.Encode(c.account, p.Grant.ID), Source: p.Grant.Source, Priority: p.Grant.Priority,
			Use: p.Use, Available: p.Available, Takes: p.Takes,
		}
		if p.Use != holdfast.PocketWaiting { // whose times are those of now
			pocket.StartsAt, pocket.EndsAt = instant(p.Grant.StartsAt), instant(p.Grant.EndsAt)
		}
		shown.Pockets = append(shown.Pockets, pocket)
	}
	return shown
}

const csvContent = "text/csv; charset=utf-8; header=present"

// csvColumns name the columns of the exported history. Further ones may come behind them.
var csvColumns = []string{
	"no", "kind", "unit", "granted", "reserved", "used", "voided", "debt", "balance_available", "balance_reserved", "balance_debt",
	"reservation", "key", "actor", "reason", "effective_at", "recorded_at",
}

// pageFor is how long a reader may take for a page of a long answer.
const pageFor = 30 * time.Second

func exportEntries(c *call) answer {
	c.noQuery()
	name := c.request.PathValue("account")
	c.validName(name)
	query := store.Query{Kind: store.QueryEntries, Limit: holdfast.MaxPage}
	page, wrong := c.first(name, query)
	if wrong != nil {
		return *wrong
	}
	a := answer{status: http.StatusOK, content: csvContent}.with("Content-Disposition", `attachment; filename="entries.csv"`)
	a.stream = func(w http.ResponseWriter) error {
		table := csv.NewWriter(w)
		table.UseCRLF = true
		_ = table.Write(csvColumns) // an error stays with the writer until it is flushed
		for {
			for i := range page.Entries {
				_ = table.Write(csvRow(c.entry(&page.Entries[i])))
			}
			// A server's own deadline is for answers of one piece. One that knows none needs none.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageFor))
			table.Flush()
			if err := table.Error(); err != nil || page.Next == "" {
				return err
			}
			query.Cursor = page.Next
			var err error
			if page, err = c.read(query); err != nil {
				return err
			}
		}
	}
	return a
}

// csvRow is an entry with the sums of its deltas.
func csvRow(e Entry) []string {
	var sum Delta
	for _, d := range e.Deltas {
		sum.Granted += d.Granted
		sum.Reserved += d.Reserved
		sum.Used += d.Used
		sum.Voided += d.Voided
	}
	number := func(n holdfast.Amount) string { return strconv.FormatInt(int64(n), 10) }
	row := []string{
		strconv.FormatInt(e.No, 10), string(e.Kind), cell(e.Unit), number(sum.Granted), number(sum.Reserved), number(sum.Used), number(sum.Voided),
		number(e.Debt), "", "", "",
	}
	if b := e.Balance; b != nil {
		row[8], row[9], row[10] = number(b.Available), number(b.Reserved), number(b.Debt)
	}
	return append(row, cell(e.Reservation), cell(e.Key), cell(e.Actor), cell(e.Reason), e.EffectiveAt.Format(time.RFC3339Nano), e.RecordedAt.Format(time.RFC3339Nano))
}

// cell is a text that no spreadsheet takes for a formula: whoever sends a key may not run code where a history is read.
func cell(text *string) string {
	if text == nil {
		return ""
	}
	if first, _ := utf8.DecodeRuneInString(*text); strings.ContainsRune("=+-@＝＋－＠\t\r\n", first) {
		return "'" + *text
	}
	return *text
}
