package holdfast

// DeleteAccount ends everything that the account has running, gives it no further cycle, and erases what is personal about it: its
// name, language, zone, and the metadata of its reservations, also in recorded answers. The ledger stays. Nothing new
// begins: the account counts as blocked. Changed is false where it was deleted before.
type DeleteAccount struct{ base }

// Name is "delete_account".
func (DeleteAccount) Name() string { return "delete_account" }

// Erased is the name of an account that was deleted.
const Erased = "deleted"

// CauseDeleted is the cause of a release by the deletion of its account.
const CauseDeleted = "account_deleted"

func (DeleteAccount) decide(d *decision) Outcome {
	account := &d.state.Account
	if !account.DeletedAt.IsZero() {
		return Outcome{Account: d.view()}
	}
	for _, r := range d.state.overdue(endOfTime) { // in an order that does not depend on how they were loaded
		d.release(r, CauseDeleted, "")
	}
	if d.state.MoreOverdue {
		return Outcome{Again: true}
	}
	if account.Subscription != nil {
		d.tell(Event{ID: namedID(ID(account.ID), "cancelled by deletion"), Kind: EventSubscriptionCancelled})
		d.lapse(d.plan.Name, d.now)
	}
	d.moveTo("", d.now) // so that no catalog has to keep the plan for it
	account.DeletedAt, account.Blocked, account.Notices, account.Merging = d.now, true, false, Merging{}
	account.Name, account.Language, account.TimeZone, account.Metadata = Erased, "", "", nil
	d.state.erase()
	d.open()
	d.tell(Event{ID: namedID(ID(account.ID), "deleted"), Kind: EventDeleted})
	return Outcome{Changed: true, Account: d.view()}
}
