package holdfast

import "slices"

// DeleteAccount ends everything that the account has running, gives it no further cycle, and erases what is personal about it: its
// name, language, zone, and the metadata of its reservations, also in recorded answers. The ledger stays. Nothing new
// begins: the account counts as blocked. Changed is false where it was deleted before.
//
// Word of it is sent to every name that leads to the account, each an account of its own: see ForgetName. A repetition sends
// it again.
type DeleteAccount struct{ base }

// Name is "delete_account".
func (DeleteAccount) Name() string { return "delete_account" }

// Erased is the name of an account that was deleted.
const Erased = "deleted"

// CauseDeleted is the cause of a release by the deletion of its account.
const CauseDeleted = "account_deleted"

func (DeleteAccount) decide(d *decision) Outcome {
	account := &d.state.Account
	if d.deleted() {
		d.sendWord()
		return Outcome{Account: d.view()}
	}
	if more := d.releaseLive(); more {
		return Outcome{Again: true}
	}
	if account.Subscription != nil {
		d.tell(Event{ID: namedID(ID(account.ID), "cancelled by deletion"), Kind: EventSubscriptionCancelled})
		d.lapse(d.plan.Name, d.now)
	}
	d.moveTo("", d.now) // so that no catalog has to keep the plan for it
	d.forgetPerson()
	d.open()
	d.tell(Event{ID: namedID(ID(account.ID), "deleted"), Kind: EventDeleted})
	return Outcome{Changed: true, Account: d.view()}
}

// releaseLive releases what is live, as far as it was loaded, and reports whether there is more.
func (d *decision) releaseLive() (more bool) {
	for _, r := range d.state.overdue(endOfTime) { // in an order that does not depend on how they were loaded
		d.release(r, CauseDeleted, "")
	}
	return d.state.MoreOverdue
}

// forgetPerson erases what is personal, and sends word of it to the names that lead here.
func (d *decision) forgetPerson() {
	account := &d.state.Account
	account.DeletedAt, account.Blocked, account.Notices, account.Merging = d.now, true, false, Merging{}
	account.Name, account.Language, account.TimeZone, account.Metadata = Erased, "", "", nil
	d.state.erase()
	d.state.touchAccount()
	d.sendWord()
}

// sendWord lets the names that lead to a deleted account know, where they are not being told already.
func (d *decision) sendWord() {
	account := &d.state.Account
	if len(account.Names) == 0 || slices.ContainsFunc(account.Transfers, func(t Transfer) bool { return len(t.Forget) > 0 }) {
		return
	}
	word := Transfer{ID: namedID(ID(account.ID), "word of deletion by "+d.command.ID.String()), Forget: slices.Clone(account.Names)}
	account.Transfers = append(slices.Clone(account.Transfers), word)
	d.state.touchAccount()
}

// ForgetName does for a name that leads to a deleted account what DeleteAccount does for that one: an alias, or an account
// that was merged, ends what it still has running and forgets the person. The name goes on leading there, so that nobody
// begins anew under it. Where it leads elsewhere, nothing changes. What is told twice sends word on twice.
type ForgetName struct {
	base
	Into AccountID // the account that was deleted
}

// Name is "forget_name".
func (ForgetName) Name() string { return "forget_name" }

func (op ForgetName) print(f *printer) { f.text("into", op.Into.String()) }

func (op ForgetName) decide(d *decision) Outcome {
	switch {
	case d.state.Account.MergedInto != op.Into:
		return Outcome{}
	case d.deleted():
		d.sendWord()
		return Outcome{}
	}
	if more := d.releaseLive(); more {
		return Outcome{Again: true}
	}
	d.forgetPerson()
	return Outcome{Changed: true}
}
