package holdfast

import (
	"fmt"
	"slices"
	"time"
)

// An account can have several names: an alias is an account of its own that holds nothing and leads to the other one. Two
// accounts that turn out to be one person's become one: what the first has moves to the second, and the first leads there.
// These are two transactions, each on one account: what has left the first is kept there as a transfer until it has arrived.

// Transfer is what left an account that was merged, on its way to the one that took its place. Two more kinds of work that
// one decision cannot do are kept, found and done in the same way: Forget and Stop.
type Transfer struct {
	ID      ID
	Grants  []Grant           `json:",omitzero"` // as they are to be opened there
	Debts   map[string]Amount `json:",omitzero"`
	Periods []PaidPeriod      `json:",omitzero"`
	Renews  bool              `json:",omitzero"` // the subscription was to be renewed
	Plan    string            `json:",omitzero"` // that was set without a payment
	Revokes []Revocation      `json:",omitzero"`
	// Forget are the names that have still to be told that this account was deleted. Such a transfer has nothing else.
	Forget []AccountID `json:",omitzero"`
	// Stop are grants that were refunded, of which more work is to be asked to stop than was loaded. Nor has such a one more.
	Stop []ID `json:",omitzero"`
}

// Revocation is what the refund of a payment takes back of grants that were moved.
type Revocation struct {
	Payment ID
	Unit    string `json:",omitzero"`
	Amount  Amount `json:",omitzero"`
	AsDebt  bool   `json:",omitzero"` // what is used becomes debt
	Period  bool   `json:",omitzero"` // the period that the payment paid for ends
	Stop    bool   `json:",omitzero"` // its work is asked to stop
}

// RegisterName notes that another account is about to lead to this one, before it does: so that it can be told when this one
// is deleted, and so that not too many come to lead here in a row. A name that never came to lead here does no harm, but it
// counts. Changed is false where it is noted already.
type RegisterName struct {
	base
	Named AccountID
	Line  int // of the account that is named
}

// Name is "register_name".
func (RegisterName) Name() string { return "register_name" }

func (op RegisterName) print(f *printer) { f.text("named", op.Named.String()) }

func (op RegisterName) decide(d *decision) Outcome {
	account := &d.state.Account
	known := slices.Contains(account.Names, op.Named)
	switch {
	case d.deleted():
		return Outcome{Reason: AccountBlocked, Refusal: &Refusal{MaxActive: d.plan.MaxActive, Plan: d.plan.Name}}
	case known && op.Line < account.Line:
		return Outcome{}
	case !known && len(account.Names) >= MaxAliases:
		return invalid("account", fmt.Sprintf("use another one: %d names lead to it already", len(account.Names)))
	}
	if !known {
		account.Names = append(slices.Clone(account.Names), op.Named)
	}
	account.Line = max(account.Line, op.Line+1)
	d.state.touchAccount()
	return Outcome{Changed: true}
}

// LinkAlias makes a name lead to another account, where it was registered before. The command's account is the alias; it must not be an account of its own:
// such a one is merged. Changed is false where it leads there already.
type LinkAlias struct {
	base
	Into  AccountID
	Named AccountID // how the caller named Into: what tells one request from another; zero: so
}

// Name is "alias".
func (LinkAlias) Name() string { return "alias" }

func (op LinkAlias) print(f *printer) { f.target(op.Into, op.Named) }

// target writes an account as it was named: what a name leads to can change between a request and its repetition.
func (f *printer) target(id, named AccountID) {
	if !named.IsZero() {
		id = named
	}
	f.text("into", id.String())
}

func (op LinkAlias) decide(d *decision) Outcome {
	account := &d.state.Account
	switch {
	case account.ID == op.Into:
		return invalid("alias", "use another name: this is the account's own")
	case account.MergedInto == op.Into:
		return Outcome{}
	case d.state.Exists():
		return Outcome{Reason: AccountExists}
	}
	account.MergedInto, account.Notices = op.Into, false
	d.open()
	d.tell(Event{ID: namedID(ID(account.ID), "alias"), Kind: EventMerged})
	return Outcome{Changed: true}
}

// Merging is a merge that was announced.
type Merging struct {
	Into AccountID // zero: none was
	ID   ID        // tells one announcement from another
}

// AnnounceMerge says that another account is about to take this one's place, before MergeInto lets it. Merges into each
// other, or in a circle, would leave nobody: each is decided on an account of its own and sees nothing of the others. So
// whoever merges announces it first, then looks where the account would lead to, by merges and by announcements. Of all that
// would close a circle the last to be announced finds the others, so it cannot be overlooked; then an announcement is taken
// back. One that is left behind by a crash holds nobody up: nothing else asks for it, a newer one takes its place, and who
// meets it in a circle takes it back.
//
// It is refused where too many accounts lead to this one in a row: the oldest name's requests go through all of them, since
// each has answered some. Merges at the same time may exceed that by what they did not see of each other: such a line is
// followed to its end all the same.
//
// Changed is false where it was announced already, and where MergeInto would refuse: that says why.
type AnnounceMerge struct {
	base
	Into AccountID
}

// Name is "announce_merge".
func (AnnounceMerge) Name() string { return "announce_merge" }

func (op AnnounceMerge) print(f *printer) { f.text("into", op.Into.String()) }

func (op AnnounceMerge) decide(d *decision) Outcome {
	account := &d.state.Account
	switch {
	case account.ID == op.Into || !account.MergedInto.IsZero() || d.deleted():
		return Outcome{}
	case account.Line >= MaxNames:
		return invalid("from", fmt.Sprintf("let it take the other account in instead: %d accounts in a row lead to it already", account.Line))
	case account.Merging.Into == op.Into:
		return Outcome{}
	}
	account.Merging = Merging{Into: op.Into, ID: d.command.ID}
	d.state.touchAccount()
	return Outcome{Changed: true}
}

// WithdrawMerge takes an announcement back. Changed is false where it does not stand any more.
type WithdrawMerge struct {
	base
	ID ID
}

// Name is "withdraw_merge".
func (WithdrawMerge) Name() string { return "withdraw_merge" }

func (op WithdrawMerge) print(f *printer) { f.text("announced", op.ID.String()) }

func (op WithdrawMerge) decide(d *decision) Outcome {
	account := &d.state.Account
	if op.ID.IsZero() || account.Merging.ID != op.ID {
		return Outcome{}
	}
	account.Merging = Merging{}
	d.state.touchAccount()
	return Outcome{Changed: true}
}

// MergeInto lets another account take this one's place, as it was announced. What is available moves there with its source, its end and its
// payment, and so do debts and what was paid for; free allowances do not: the other account has its own. What runs goes on
// here, and what it returns follows. Changed is false where it was merged there before.
type MergeInto struct {
	base
	Into  AccountID
	Named AccountID // as of LinkAlias
	// Announced is the announcement, which must still stand.
	Announced ID
}

// Name is "merge".
func (MergeInto) Name() string { return "merge" }

func (op MergeInto) print(f *printer) { f.target(op.Into, op.Named) }

func (op MergeInto) decide(d *decision) Outcome {
	account := &d.state.Account
	switch {
	case account.ID == op.Into:
		return invalid("from", "an account cannot be merged into itself")
	case account.MergedInto == op.Into:
		return Outcome{}
	case !account.MergedInto.IsZero():
		return invalid("from", "it was merged into another account already")
	case d.deleted():
		return Outcome{Reason: AccountBlocked, Refusal: &Refusal{}}
	case account.Merging != Merging{Into: op.Into, ID: op.Announced}:
		return invalid("from", "its merge was taken back, because of another one that was under way; repeat it")
	}
	account.MergedInto, account.Merging, account.Notices = op.Into, Merging{}, false
	d.state.touchAccount()
	d.moveOut()
	d.tell(Event{ID: namedID(ID(account.ID), "merged"), Kind: EventMerged})
	return Outcome{Changed: true}
}

// moveOut sends on what an account that was merged still has. It runs after every decision about such an account.
func (d *decision) moveOut() {
	account := &d.state.Account
	sent := Transfer{ID: namedID(ID(account.ID), fmt.Sprintf("transfer after %d by %s", account.LastEntry, d.command.ID))}
	for _, g := range slices.Clone(d.state.Grants) {
		n := g.Available()
		if n == 0 || g.Ended(d.now) || d.freeAllowance(g) {
			continue
		}
		d.post(note{kind: EntryMerge, unit: g.Unit}, func(p *posting) { p.sendOn(g, n) })
		moved := Grant{
			ID: namedID(sent.ID, fmt.Sprint(len(sent.Grants))), Unit: g.Unit, Source: g.Source, Features: g.Features, Priority: g.Priority,
			Granted: n, StartsAt: g.StartsAt, EndsAt: g.EndsAt, Payment: g.Payment, CreatedAt: d.now, Open: true,
		}
		sent.Grants = append(sent.Grants, moved)
	}
	for _, unit := range d.units() {
		owed := account.Debts[unit]
		if owed == 0 {
			continue
		}
		d.post(note{kind: EntryMerge, unit: unit}, func(p *posting) { p.owe(-owed) })
		if sent.Debts == nil {
			sent.Debts = map[string]Amount{}
		}
		sent.Debts[unit] = owed
	}
	if s := account.Subscription; s != nil {
		sent.Periods, sent.Renews = d.behind(s.Periods, d.now), !s.Cancelled
		account.Subscription = nil
	} else if !d.plan.Default {
		sent.Plan = d.plan.Name
	}
	account.Plan, account.Lapsed = "", ""
	d.plan = d.catalog.PlanOf(account)
	sent.Revokes, d.revocations = d.revocations, nil
	if len(sent.Grants)+len(sent.Debts)+len(sent.Periods)+len(sent.Revokes) > 0 || sent.Plan != "" {
		account.Transfers = append(slices.Clone(account.Transfers), sent)
		d.state.touchAccount()
	}
}

// freeAllowance reports whether the grant is a cycle that nobody paid for: the default plan's, or one set without payment.
func (d *decision) freeAllowance(g *Grant) bool {
	return g.Source == FromAllowance && g.Payment.IsZero() || g.Source == FromRollover && g.Payment.IsZero()
}

// TakeOver receives a transfer. Its key is the transfer's, so that it arrives once. Of two subscriptions the dearer plan
// runs, and what is left of the other is kept behind it.
type TakeOver struct {
	base
	From     AccountID
	Transfer Transfer
}

// Name is "take_over".
func (TakeOver) Name() string { return "take_over" }

func (TakeOver) creates() bool { return true }

func (op TakeOver) print(f *printer) { f.text("transfer", op.Transfer.ID.String()) }

// TransferKey is the key under which a transfer is taken over.
func TransferKey(from AccountID, transfer ID) string {
	return "transfer " + from.String() + " " + transfer.String()
}

func (op TakeOver) decide(d *decision) Outcome {
	account := &d.state.Account
	reason := "merged from " + op.From.String()
	for i := range op.Transfer.Grants {
		g := op.Transfer.Grants[i]
		g.CreatedAt = d.now
		if g.Ended(d.now) {
			g.EndsAt = d.now.Add(time.Microsecond) // it ended on its way: the ledger shows that it came
		}
		d.post(note{kind: EntryMerge, unit: g.Unit, reason: reason}, func(p *posting) { p.issue(&g) })
	}
	for _, unit := range sortedKeys(op.Transfer.Debts) {
		d.post(note{kind: EntryMerge, unit: unit, reason: reason}, func(p *posting) { p.owe(op.Transfer.Debts[unit]) })
	}
	if len(op.Transfer.Periods) > 0 {
		d.takePeriods(op.Transfer)
	}
	if plan, ok := d.catalog.Plan(op.Transfer.Plan); ok && account.Subscription == nil && d.catalog.dearer(plan.Name, d.plan.Name) {
		account.Anchor, account.AnchorZone = d.endOfRunning(plan), account.TimeZone
		d.state.Zones.Anchor = d.state.Zones.Account
		d.moveTo(plan.Name, d.now)
		d.openCycles()
	}
	var ended []*Grant
	for _, r := range op.Transfer.Revokes {
		if r.Stop {
			d.stopRunning(r.Payment, ended, true) // none is loaded here
			continue
		}
		ended = append(ended, d.takeBack(r)...)
	}
	d.open()
	d.tell(Event{ID: namedID(op.Transfer.ID, "arrived"), Kind: EventMerged})
	return Outcome{Changed: true, Account: d.view()}
}

// payment is the one whose grants are taken back, so that they are loaded.
func (op TakeOver) payment(AccountID) ID {
	if len(op.Transfer.Revokes) == 0 {
		return ID{}
	}
	return op.Transfer.Revokes[0].Payment
}

// takeBack does here what the refund of a payment could not do where the payment is, and returns what ended besides.
func (d *decision) takeBack(r Revocation) (ended []*Grant) {
	paid := &Payment{ID: r.Payment, Provider: "merged"}
	left := r.Amount
	var granted, used, gone Amount
	for _, g := range d.state.Grants {
		if g.Payment != r.Payment || g.Unit != r.Unit {
			continue
		}
		granted, used, gone = granted+g.Granted, used+g.Used, gone+g.Revoked
		part := min(left, g.Available())
		d.revokeFrom(g, part, paid.reason())
		left -= part
	}
	for _, g := range d.state.Grants {
		if part := min(left, g.Reserved-g.Doomed); g.Payment == r.Payment && g.Unit == r.Unit && part > 0 {
			d.doom(g, part)
			left -= part
		}
	}
	// As where the payment is: what was never used, also where it has ended by itself, is taken back before anything is owed.
	if debt := min(left, r.Amount+gone+used-granted); r.AsDebt && debt > 0 {
		d.post(note{kind: EntryDebt, unit: r.Unit, reason: paid.reason()}, func(p *posting) { p.owe(debt) })
	}
	if r.Period {
		return d.takePeriod(paid, true)
	}
	return nil
}

// takePeriods puts paid periods among those of the account.
func (d *decision) takePeriods(t Transfer) {
	account := &d.state.Account
	s := account.Subscription.clone()
	incoming := t.Periods
	if s == nil {
		s = &Subscription{Anchor: d.now, Cancelled: !t.Renews, Periods: d.behind(incoming, d.now)}
	} else {
		own := d.behind(s.Periods, d.now)
		first, second := own, incoming
		if len(own) == 0 || d.catalog.dearer(incoming[0].Plan, own[0].Plan) {
			first, second = incoming, own
			s.Cancelled = !t.Renews
		}
		first = d.behind(first, d.now)
		end := d.now
		if len(first) > 0 {
			end = first[len(first)-1].End
		}
		s.Periods = append(first, d.behind(second, end)...)
	}
	if len(s.Periods) == 0 {
		return
	}
	account.Subscription, account.Lapsed = s, ""
	d.state.touchAccount()
	d.moveTo(s.Periods[0].Plan, d.now)
	d.advance()
}

// TransferDone forgets a transfer that has arrived.
type TransferDone struct {
	base
	ID ID
}

// Name is "transfer_done".
func (TransferDone) Name() string { return "transfer_done" }

func (op TransferDone) print(f *printer) { f.text("transfer", op.ID.String()) }

func (op TransferDone) decide(d *decision) Outcome {
	account := &d.state.Account
	left := slices.DeleteFunc(slices.Clone(account.Transfers), func(t Transfer) bool { return t.ID == op.ID })
	changed := len(left) < len(account.Transfers)
	if changed {
		account.Transfers = left
		d.state.touchAccount()
	}
	return Outcome{Changed: changed}
}

// leadsOn reports whether a request to an account that was merged goes to the one that took its place. What was handed out
// before is settled here: reservations by their ids, payments that came here, and what moves things on.
func (d *decision) leadsOn() bool {
	if d.state.Account.MergedInto.IsZero() {
		return false
	}
	switch op := d.command.Do.(type) {
	case LinkAlias, RegisterName, AnnounceMerge, WithdrawMerge, MergeInto, TransferDone, ForgetName, Expire:
		return false
	case Pay, RefundPayment:
		_, here := d.state.Payment(PaymentOf(op, d.state.Account.ID))
		return !here
	}
	return ReservationOf(d.command.Do).IsZero()
}
