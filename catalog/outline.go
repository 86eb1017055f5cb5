package catalog

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// This file says, for every field of a catalog, how it is shown and what a change of it does to whom. Diff compares no
// more than what is here; TestNoFieldOfACatalogCanChangeUnseen compares what is here with the types.

const (
	notSet = "not set" // no name of anything, unlike none

	atOnce        = "what people read, at once"
	keepsPrice    = "new reservations at once; live ones keep their price"
	keepsOwn      = "new reservations at once; live ones keep theirs"
	liveGoOn      = "new reservations at once; live ones go on"
	newJobs       = "new jobs at once; those that wait stay in their queue"
	noticesNow    = "notices from now on"
	purchasesNow  = "purchases from now on; what was bought stays"
	refundsNow    = "refunds from now on"
	refusedAtOnce = "new reservations are refused at once; live ones go on"
)

// section is one of the lists of a catalog.
type section struct {
	name   string
	things []thing
}

// outline is a catalog in the order of the file.
func outline(c *holdfast.Catalog) []section {
	return []section{
		{"units", each(c.Units, outlineUnit)},
		{"features", each(c.Features, outlineFeature)},
		{"surfaces", each(c.Surfaces, outlineSurface)},
		{"plans", each(c.Plans, outlinePlan)},
		{"products", each(c.Products, outlineProduct)},
	}
}

func each[T any](list []T, outline func(*T) thing) []thing {
	var things []thing
	for i := range list {
		things = append(things, outline(&list[i]))
	}
	return things
}

func outlineUnit(u *holdfast.Unit) thing {
	return thing{
		name: u.Name,
		facts: []fact{
			{name: "scale", text: amountText(holdfast.Amount(u.Scale)), unset: "0", effect: "how amounts are shown, at once; they stay the same number of smallest steps"},
			{name: "names", text: pluralsText(u.Names), unset: notSet, effect: atOnce},
		},
		added:   "it can be granted at once",
		removed: "it cannot be granted any more",
	}
}

func outlineFeature(f *holdfast.Feature) thing {
	return thing{
		name: f.Name,
		facts: []fact{
			{name: "names", text: namesText(f.Names), unset: notSet, effect: atOnce},
			{name: "price", text: pricesText(f.Prices), unset: notSet, effect: keepsPrice},
			{name: "longest_job", text: clockText(f.LongestJob), unset: "0s", effect: "what the ttl must cover; reservations stay as they are"},
			{name: "longest_wait", text: clockText(f.LongestWait), unset: "0s", effect: "what the ttl must cover; reservations stay as they are"},
			{name: "ttl", text: clockText(f.TTL), unset: "0s", effect: keepsOwn},
			{name: "max_hold", text: clockText(f.MaxHold), unset: strconv.Itoa(holdfast.HoldFactor) + " × the reservation's ttl", effect: keepsOwn},
			{name: "queue", text: f.Queue, unset: "the feature's name", effect: newJobs},
			{name: "overrun", text: string(f.Policies.Overrun), unset: "cap", effect: keepsOwn},
			{name: "in_doubt", text: string(f.Policies.InDoubt), unset: "release", effect: keepsOwn},
			{name: "late_commit", text: string(f.Policies.LateCommit), unset: "charge", effect: keepsOwn},
			{name: "cancel_running", text: string(f.Policies.CancelRunning), unset: "deny", effect: keepsOwn},
		},
		added:   "accounts on the plans that list it, at once",
		removed: refusedAtOnce,
	}
}

func outlineSurface(s *holdfast.Surface) thing {
	return thing{
		name:    s.Name,
		facts:   []fact{{name: "ttl", text: clockText(s.TTL), unset: "the feature's", effect: keepsOwn}},
		added:   "requests can come from there, at once",
		removed: "requests that come from there are refused at once; live reservations go on",
	}
}

func outlinePlan(p *holdfast.Plan) thing {
	standing, retiring := "accounts that were set to no plan leave it, at once", "accounts can be put on it again"
	if p.Default {
		standing = "accounts that were set to no plan are on it, at once"
	}
	if p.Retired {
		retiring = "nobody is put on it any more; who is on it stays"
	}
	return thing{
		name: p.Name, plan: p.Name,
		facts: []fact{
			{name: "default", text: truthText(p.Default), unset: "false", effect: standing},
			{name: "retired", text: truthText(p.Retired), unset: "false", effect: retiring},
			{name: "names", text: namesText(p.Names), unset: notSet, effect: atOnce},
			{name: "features", text: strings.Join(p.Features, ", "), unset: "[]", effect: liveGoOn},
			{name: "free_features", text: strings.Join(p.FreeFeatures, ", "), unset: "[]", effect: keepsPrice},
			{name: "allowances", parts: each(p.Allowances, func(a *holdfast.Allowance) thing { return outlineAllowance(p, a) })},
			{name: "max_active", text: strconv.Itoa(p.MaxActive), effect: liveGoOn},
			{name: "tier", text: p.Tier, unset: notSet, effect: newJobs},
			{name: "queue_notice_after", text: clockText(p.QueueNoticeAfter), unset: "never", effect: noticesNow},
			{name: "upgrade", text: string(p.Upgrade), unset: "difference", effect: "changes of plan from now on"},
			{name: "grace", text: daysText(p.Grace), unset: notSet, effect: "renewals that fail from now on"},
			{name: "refund", text: string(p.Refund), unset: "revoke_unused", effect: refundsNow},
			{name: "running_on_refund", text: string(p.RunningOnRefund), unset: "finish", effect: refundsNow},
			{name: "debt_limit", text: amountsText(p.DebtLimits), unset: notSet, effect: "new debts at once; what is owed stays owed"},
			{name: "low_balance", text: amountsText(p.LowBalance), unset: notSet, effect: noticesNow},
		},
		added:   "accounts can be put on it at once",
		removed: "nobody can be put on it any more; it is kept while somebody is on it",
	}
}

func outlineAllowance(p *holdfast.Plan, a *holdfast.Allowance) thing {
	nextCycle := "accounts on plan " + p.Name + ", from their next cycle"
	return thing{
		name: strings.TrimPrefix(a.Key, p.Name+"/"), plan: p.Name,
		facts: []fact{
			{name: "unit", text: a.Unit, unset: notSet, effect: nextCycle},
			{name: "amount", text: strconv.FormatInt(int64(a.Amount), 10), effect: nextCycle},
			{name: "every", text: cycleText(a.Every), unset: "never", effect: nextCycle},
			{name: "rollover", text: amountText(a.Rollover), unset: "nothing", effect: nextCycle},
		},
		added:   "accounts on plan " + p.Name + ", at once",
		removed: "accounts on plan " + p.Name + " get no further cycle; what they have stays until it ends",
	}
}

func outlineProduct(p *holdfast.Product) thing {
	retiring := "it is sold again"
	if p.Retired {
		retiring = "it is not sold any more; a payment that was begun before is still honoured"
	}
	return thing{
		name: p.Name,
		facts: []fact{
			{name: "retired", text: truthText(p.Retired), unset: "false", effect: retiring},
			{name: "names", text: namesText(p.Names), unset: notSet, effect: atOnce},
			{name: "plan", text: p.Plan, unset: notSet, effect: purchasesNow},
			{name: "period", text: shownPeriod(p.Period), unset: notSet, effect: purchasesNow},
			{name: "grant", text: grantText(p.Grant), unset: notSet, effect: purchasesNow},
			{name: "prices", text: moneyText(p.Prices), unset: notSet, effect: purchasesNow},
		},
		added:   "it can be bought at once",
		removed: "it cannot be bought any more; what was bought stays",
	}
}

// The texts below differ wherever the values do. What is left out of the file has none.

func truthText(truth bool) string {
	if truth {
		return "true"
	}
	return ""
}

func amountText(amount holdfast.Amount) string {
	if amount == 0 {
		return ""
	}
	return strconv.FormatInt(int64(amount), 10)
}

func clockText(length time.Duration) string { return lengthText(length, clock) }

func daysText(length time.Duration) string { return lengthText(length, shown) }

func lengthText(length time.Duration, show func(time.Duration) string) string {
	switch {
	case length == 0:
		return ""
	case length < 0 || length%time.Second != 0: // from no file
		return length.String()
	default:
		return show(length)
	}
}

func cycleText(cycle holdfast.Cycle) string {
	var parts []string
	if cycle.Rolling != 0 {
		parts = append(parts, rolling+daysText(cycle.Rolling))
	}
	if cycle.Calendar != "" {
		parts = append(parts, "calendar "+string(cycle.Calendar))
	}
	if cycle.Anniversary {
		parts = append(parts, "anniversary month")
	}
	if cycle.Term {
		parts = append(parts, "term")
	}
	return strings.Join(parts, ", ")
}

func pricesText(prices []holdfast.Price) string {
	var texts []string
	for _, price := range prices {
		text := strconv.FormatInt(int64(price.Amount), 10) + " " + price.Unit
		if price.ByUsage() || len(price.Rates) > 0 {
			text = price.Unit + " per " + strconv.FormatInt(int64(price.Per), 10) + ": " + amountsText(price.Rates)
			if price.Amount != 0 { // from no file
				text = amountText(price.Amount) + " " + text
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", else ")
}

func amountsText(amounts map[string]holdfast.Amount) string {
	return mapText(amounts, func(amount holdfast.Amount) string { return strconv.FormatInt(int64(amount), 10) })
}

func namesText(names holdfast.Names) string { return mapText(names, strconv.Quote) }

func pluralsText(plurals holdfast.Plurals) string {
	return mapText(plurals, func(forms map[string]string) string { return "{" + mapText(forms, strconv.Quote) + "}" })
}

func mapText[Value any](values map[string]Value, show func(Value) string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		texts = append(texts, name+" "+show(values[name]))
	}
	return strings.Join(texts, ", ")
}

func grantText(grant *holdfast.ProductGrant) string {
	if grant == nil {
		return ""
	}
	text := strconv.FormatInt(int64(grant.Amount), 10) + " " + grant.Unit
	if length := shownPeriod(grant.For); length != "" {
		text += " for " + length
	}
	return text
}

func moneyText(prices []holdfast.Money) string {
	var texts []string
	for _, price := range prices {
		texts = append(texts, strconv.FormatInt(int64(price.Amount), 10)+" "+price.Currency)
	}
	return strings.Join(texts, ", ")
}
