package holdfast_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

var update = flag.Bool("update", false, "rewrite the golden outputs of testdata/decide")

// TestDecide plays the decision scripts of testdata/decide: prose in lines that begin with #, then commands, then a line
// of four hyphens, then what each command came to. A file is one world: what one block did is there in the next. With
// -update the outputs are written anew.
//
//	clock 2026-12-01T10:00:00Z            moves the clock, also backwards;  wait 15m;  wait 30d
//	catalog example                       the catalog of harness_test.go, or sold; or a small one, in indented lines
//	put ann lang=ru zone=Europe/Moscow blocked=yes notices=no metadata=a:b
//	plan ann pro
//	grant ann credit 9 source=purchase starts=1h ends=24h priority=5 features=a,b reason="…" key=g1
//	adjust ann credit -5 reason="…" key=a1
//	reserve ann image.generate quantity=3 ttl=10m surface=bot usage=input:1200,output:4096 metadata=a:b key=m1 [dry]
//	reserve ann image.generate job attempts=2 key=m1    with work that Holdfast queues
//	charge ann image.generate amount=4 key=c1      with what reserve takes
//	start m1 worker=w1 token=t1 lease=60s
//	heartbeat m1 token=t1 lease=60s
//	extend m1 ttl=10m quantity=2 usage=input:9000 token=t1
//	commit m1 [amount=3 | quantity=1 | usage=input:1000] token=t1      usage= alone names no kind
//	in_doubt m1 token=t1
//	release m1 cause=failed token=t1      with "back" or "unstarted": gives the job back;   end_lost m1
//	cancel m1
//	force m1 commit 2 reason="…"          or: force m1 release
//	refund m1 2 ended=correction reason="…" key=r1
//	expire ann
//	delete ann
//	pay ann pro_30 250 XTR id=p1 period_end=2027-01-01T10:00:00Z refunds=r1:100,r2 [stranger] [agreed]
//	refund_payment ann p1 100 id=r1 policy=keep [dispute]      without an amount: all that is left
//	change ann max when=now
//	cancel_subscription ann   resume ann
//	subscription ann   payment ann p1
//	balance ann   grants ann   show m1   entries ann last=3   events ann last=3
//	notices ann                           what waits to be told, after what is due was told, put off or dropped
//	balance ann at=2026-12-01T10:00:00Z   what was believed at that moment
//	explain ann image.generate quantity=3
//
// Reservations are called by the key they were made under, or by as=name. Grants are called by their key, cycles of an
// allowance by their source and number. Every command takes project=… and retry (ask anew where a refusal is recorded),
// those on a reservation key=… as well. "repeat 3" before a command submits it three times; % in it is the count.
func TestDecide(t *testing.T) {
	files, err := filepath.Glob("testdata/decide/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no decision scripts: %v", err)
	}
	seen := map[holdfast.Reason]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			played := play(t, file)
			maps.Copy(seen, played)
		})
	}
	if t.Failed() {
		return
	}
	for _, info := range holdfast.Reasons() {
		if !seen[info.Reason] {
			t.Errorf("no script comes to %q", info.Reason)
		}
	}
}

// play runs one script, compares or rewrites its outputs, and returns the reasons it came to.
func play(t *testing.T, file string) map[holdfast.Reason]bool {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{world: newWorld(t), t: t, reservations: map[string]named{}, names: map[holdfast.ID]string{}, seen: map[holdfast.Reason]bool{}}
	var rewritten strings.Builder
	for _, block := range parseScript(string(text)) {
		for _, prose := range block.prose {
			fmt.Fprintln(&rewritten, prose)
		}
		if len(block.commands) == 0 {
			continue
		}
		var output []string
		for i, command := range block.commands {
			s.where = fmt.Sprintf("%s:%d", file, block.line+i)
			fmt.Fprintln(&rewritten, command)
			if indented(command) {
				continue
			}
			detail := block.commands[i+1:]
			if end := slices.IndexFunc(detail, func(line string) bool { return !indented(line) }); end >= 0 {
				detail = detail[:end]
			}
			output = append(output, strings.Split(s.run(command, detail), "\n")...)
		}
		fmt.Fprintln(&rewritten, "----")
		for _, line := range output {
			fmt.Fprintln(&rewritten, line)
		}
		if got, want := strings.Join(output, "\n"), strings.Join(block.output, "\n"); got != want && !*update {
			t.Errorf("%s:%d:\n%s\n---- got\n%s\n---- want\n%s", file, block.line, strings.Join(block.commands, "\n"), got, want)
		}
	}
	s.verify()
	if *update && rewritten.String() != string(text) {
		if err := os.WriteFile(file, []byte(rewritten.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s.seen
}

// block is a piece of a script: prose and blank lines, then commands, then what they came to.
type block struct {
	line                    int // of the first command
	prose, commands, output []string
}

func parseScript(text string) []block {
	var blocks []block
	var b block
	part := &b.prose
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		prose := line == "" || strings.HasPrefix(line, "#")
		switch {
		case part == &b.output && prose:
			blocks = append(blocks, b)
			b = block{}
			part = &b.prose
		case part == &b.prose && !prose:
			b.line = i + 1
			part = &b.commands
		}
		if part == &b.commands && line == "----" {
			part = &b.output
			continue
		}
		if part == &b.commands && prose { // a block that has no output yet
			blocks = append(blocks, b)
			b = block{}
			part = &b.prose
		}
		*part = append(*part, line)
	}
	return append(blocks, b)
}

func indented(line string) bool { return strings.HasPrefix(line, " ") }

// script is a world that is told what to do in words.
type script struct {
	*world
	t             *testing.T
	where         string
	reservations  map[string]named
	names         map[holdfast.ID]string // of reservations and grants
	seen          map[holdfast.Reason]bool
	announcements map[string]holdfast.ID // of merges, by both names
}

// named is a reservation by its account and id.
type named struct {
	account holdfast.AccountID
	id      holdfast.ID
}

// line is one command, split into words and options.
type line struct {
	words   []string
	options map[string]string
	s       *script
}

func (s *script) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s", s.where, fmt.Sprintf(format, args...))
}

// run does one line, and returns what came of it.
func (s *script) run(text string, detail []string) string {
	if rest, ok := strings.CutPrefix(text, "repeat "); ok {
		return s.repeat(rest)
	}
	l := s.parse(text)
	verb := l.word("a verb")
	run, ok := verbs[verb]
	if !ok {
		s.fail("unknown verb %q", verb)
	}
	output := run(s, l, detail)
	for _, word := range l.words {
		s.fail("word %q means nothing here", word)
	}
	for name := range l.options {
		s.fail("option %q means nothing here", name)
	}
	return output
}

func (s *script) repeat(text string) string {
	count, command, _ := strings.Cut(text, " ")
	times, err := strconv.Atoi(count)
	if err != nil {
		s.fail("repeat: %v", err)
	}
	var last string
	for i := range times {
		last = s.run(strings.ReplaceAll(command, "%", strconv.Itoa(i+1)), nil)
	}
	return fmt.Sprintf("%d times, the last: %s", times, last)
}

func (s *script) parse(text string) *line {
	l := &line{options: map[string]string{}, s: s}
	var word strings.Builder
	quoted, some := false, false
	flush := func() {
		if !some {
			return
		}
		if name, value, ok := strings.Cut(word.String(), "="); ok {
			l.options[name] = value
		} else {
			l.words = append(l.words, word.String())
		}
		word.Reset()
		some = false
	}
	for _, r := range text {
		switch {
		case r == '"':
			quoted, some = !quoted, true
		case r == '#' && !quoted && !some:
			return l
		case r == ' ' && !quoted:
			flush()
		default:
			word.WriteRune(r)
			some = true
		}
	}
	flush()
	return l
}

func (l *line) word(what string) string {
	l.s.t.Helper()
	if len(l.words) == 0 {
		l.s.fail("%s is missing", what)
	}
	word := l.words[0]
	l.words = l.words[1:]
	return word
}

// flag takes a word away where it stands among those that are left.
func (l *line) flag(word string) bool {
	i := slices.Index(l.words, word)
	if i >= 0 {
		l.words = slices.Delete(l.words, i, i+1)
	}
	return i >= 0
}

func (l *line) option(name string) string {
	value := l.options[name]
	delete(l.options, name)
	return value
}

func (l *line) has(name string) bool {
	_, ok := l.options[name]
	return ok
}

func (l *line) integer(text string) holdfast.Amount {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		l.s.fail("%v", err)
	}
	return holdfast.Amount(n)
}

func (l *line) amount(name string) *holdfast.Amount {
	if !l.has(name) {
		return nil
	}
	return pointer(l.integer(l.option(name)))
}

func (l *line) duration(name string) time.Duration {
	if !l.has(name) {
		return 0
	}
	length, err := time.ParseDuration(l.option(name))
	if err != nil {
		l.s.fail("%v", err)
	}
	return length
}

// moment is a time, or a duration from now on.
func (l *line) moment(name string) time.Time {
	if !l.has(name) {
		return time.Time{}
	}
	text := l.option(name)
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC()
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		l.s.fail("%v", err)
	}
	return l.s.now.Add(length)
}

func (l *line) list(name string) []string {
	if !l.has(name) {
		return nil
	}
	return strings.Split(l.option(name), ",")
}

func (l *line) yes(name string) *bool {
	if !l.has(name) {
		return nil
	}
	return pointer(l.option(name) == "yes")
}

func (l *line) text(name string) *string {
	if !l.has(name) {
		return nil
	}
	return pointer(l.option(name))
}

func (l *line) pairs(name string) map[string]string {
	var pairs map[string]string
	for _, pair := range l.list(name) {
		key, value, _ := strings.Cut(pair, ":")
		if pairs == nil {
			pairs = map[string]string{}
		}
		pairs[key] = value
	}
	return pairs
}

// amounts are pairs of a kind and a count; nil where the option is not there, and empty where it names none.
func (l *line) amounts(name string) map[string]holdfast.Amount {
	if !l.has(name) {
		return nil
	}
	amounts := map[string]holdfast.Amount{}
	if l.options[name] == "" {
		delete(l.options, name)
	}
	for kind, count := range l.pairs(name) {
		amounts[kind] = l.integer(count)
	}
	return amounts
}

// verbs are the words of the script language.
var verbs map[string]func(s *script, l *line, detail []string) string

func init() {
	verbs = map[string]func(s *script, l *line, detail []string) string{
		"clock":     (*script).clock,
		"wait":      (*script).wait,
		"catalog":   (*script).useCatalog,
		"put":       (*script).put,
		"plan":      (*script).plan,
		"grant":     (*script).grant,
		"adjust":    (*script).adjust,
		"reserve":   (*script).reserve,
		"charge":    (*script).charge,
		"start":     (*script).start,
		"heartbeat": (*script).heartbeat,
		"extend":    (*script).extend,
		"in_doubt":  (*script).inDoubt,
		"commit":    (*script).commit,
		"release":   (*script).release,
		"end_lost":  (*script).endLost,
		"cancel":    (*script).cancel,
		"force":     (*script).force,
		"refund":    (*script).refund,
		"expire":    (*script).expire,
		"delete":    (*script).delete,
		"explain":   (*script).explain,

		"alias":               (*script).alias,
		"merge":               (*script).merge,
		"register":            (*script).register,
		"announce":            (*script).announce,
		"withdraw":            (*script).withdraw,
		"arrive":              (*script).arrive,
		"pay":                 (*script).pay,
		"refund_payment":      (*script).refundPayment,
		"change":              (*script).change,
		"cancel_subscription": (*script).cancelSubscription,
		"resume":              (*script).resume,
		"subscription":        (*script).showSubscription,
		"payment":             (*script).showPayment,

		"balance": (*script).showBalance,
		"grants":  (*script).showGrants,
		"show":    (*script).showReservation,
		"entries": (*script).showEntries,
		"events":  (*script).showEvents,
		"notices": (*script).showNotices,
	}
}

func (s *script) clock(l *line, _ []string) string {
	at, err := time.Parse(time.RFC3339, l.word("a time"))
	if err != nil {
		s.fail("%v", err)
	}
	s.now = at.UTC()
	return "it is " + moment(s.now)
}

func (s *script) wait(l *line, _ []string) string {
	text := l.word("a duration")
	days, isDays := strings.CutSuffix(text, "d")
	if isDays {
		s.now = s.now.Add(time.Duration(l.integer(days)) * 24 * time.Hour)
		return "it is " + moment(s.now)
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		s.fail("%v", err)
	}
	s.now = s.now.Add(length)
	return "it is " + moment(s.now)
}

// about submits an operation of an account called by its name.
func (s *script) about(l *line, account string, do holdfast.Operation) result {
	command := s.command(account, l.option("key"), do)
	return s.submitted(l, command)
}

// onReservation submits an operation on a reservation called by its label. "nothing@ann" is an id that ann never had.
func (s *script) onReservation(l *line, label string, operation func(id holdfast.ID) holdfast.Operation) string {
	target, ok := s.reservations[label]
	if account, found := strings.CutPrefix(label, "nothing@"); found {
		target, ok = named{account: holdfast.AccountIDOf(project, account), id: commandID(1 << 30)}, true
	}
	if !ok {
		s.fail("no reservation is called %q", label)
	}
	command := s.command("", l.option("key"), operation(target.id))
	command.Target = target.account
	return s.reservationStatement(label, s.submitted(l, command))
}

func (s *script) submitted(l *line, command holdfast.Command) result {
	if l.has("project") {
		command.Project = l.option("project")
	}
	command.RetryRefused = l.flag("retry")
	done := s.submit(command)
	s.seen[done.Reason] = true
	for _, changes := range done.saved {
		s.nameGrants(command, changes)
	}
	return done
}

// nameGrants calls new grants by the key of the command that asked for one, others by source and number.
func (s *script) nameGrants(command holdfast.Command, changes holdfast.Changes) {
	stored := s.records[changes.Account.ID]
	for _, g := range changes.NewGrants {
		if pay, ok := command.Do.(holdfast.Pay); ok && g.Source == holdfast.FromPurchase {
			s.names[g.ID] = pay.PaymentID
			continue
		}
		if g.Source != holdfast.FromAllowance && g.Source != holdfast.FromRollover && command.Key != "" && len(changes.NewGrants) == 1 && command.Do.Name() != "refund" {
			s.names[g.ID] = command.Key
			continue
		}
		name := string(g.Source)
		if plan, _, ok := strings.Cut(g.Allowance, "."); ok && plan != "free" {
			name = plan + "-" + name
		}
		count := 1
		for _, other := range stored.grants {
			if strings.TrimRight(s.names[other.ID], "0123456789") == name && other.Unit == g.Unit {
				count++
			}
		}
		if count > 1 {
			name += strconv.Itoa(count)
		}
		s.names[g.ID] = name
	}
}

func (s *script) put(l *line, _ []string) string {
	account := l.word("an account")
	done := s.about(l, account, holdfast.PutAccount{
		Language: l.text("lang"), TimeZone: l.text("zone"), Blocked: l.yes("blocked"), Notices: l.yes("notices"), Metadata: l.pairs("metadata"),
	})
	return s.accountStatement(account, done)
}

func (s *script) plan(l *line, _ []string) string {
	account := l.word("an account")
	return s.accountStatement(account, s.about(l, account, holdfast.SetPlan{Plan: l.word("a plan")}))
}

func (s *script) grant(l *line, _ []string) string {
	account := l.word("an account")
	op := holdfast.AddGrant{
		Unit: l.word("a unit"), Amount: l.integer(l.word("an amount")), Source: holdfast.Source(l.option("source")),
		StartsAt: l.moment("starts"), EndsAt: l.moment("ends"), Features: l.list("features"), Reason: l.option("reason"),
	}
	if l.has("priority") {
		op.Priority = pointer(int(l.integer(l.option("priority"))))
	}
	return s.grantStatement(s.about(l, account, op))
}

func (s *script) adjust(l *line, _ []string) string {
	account := l.word("an account")
	return s.grantStatement(s.about(l, account, holdfast.Adjust{
		Unit: l.word("a unit"), Amount: l.integer(l.word("an amount")), Reason: l.option("reason"),
	}))
}

func (s *script) reserve(l *line, _ []string) string {
	account := l.word("an account")
	return s.asked(l, account, s.readReserve(l))
}

func (s *script) charge(l *line, _ []string) string {
	account := l.word("an account")
	op := holdfast.Charge{Amount: l.amount("amount")}
	op.Reserve = s.readReserve(l)
	return s.asked(l, account, op)
}

func (s *script) readReserve(l *line) holdfast.Reserve {
	op := holdfast.Reserve{
		Feature: l.word("a feature"), Surface: l.option("surface"), TTL: l.duration("ttl"), Metadata: l.pairs("metadata"), DryRun: l.flag("dry"),
		Usage: l.amounts("usage"),
	}
	if l.has("quantity") {
		op.Quantity = l.integer(l.option("quantity"))
	}
	if l.flag("job") || l.has("attempts") {
		op.Job = &holdfast.JobRequest{}
		if l.has("attempts") {
			op.Job.MaxAttempts = int(l.integer(l.option("attempts")))
		}
	}
	return op
}

// asked submits what makes a reservation, and remembers it by its label.
func (s *script) asked(l *line, account string, op holdfast.Operation) string {
	label := l.option("as")
	if label == "" {
		label = l.options["key"]
	}
	done := s.about(l, account, op)
	if r := done.Reservation; r != nil && !holdfast.IsDryRun(op) && s.names[r.ID] == "" {
		s.reservations[label] = named{account: done.Owner.ID, id: r.ID}
		s.names[r.ID] = label
	}
	return s.reservationStatement(label, done)
}

func (s *script) start(l *line, _ []string) string {
	label := l.word("a reservation")
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		return holdfast.Start{ReservationID: id, Worker: l.option("worker"), Token: l.option("token"), Lease: l.duration("lease"), Claimed: l.flag("claim")}
	})
}

func (s *script) heartbeat(l *line, _ []string) string {
	label := l.word("a reservation")
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		return holdfast.Heartbeat{ReservationID: id, LeaseToken: l.option("token"), Lease: l.duration("lease")}
	})
}

func (s *script) commit(l *line, _ []string) string {
	label := l.word("a reservation")
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		return holdfast.Commit{
			ReservationID: id, LeaseToken: l.option("token"), Amount: l.amount("amount"), Quantity: l.amount("quantity"), Usage: l.amounts("usage"),
		}
	})
}

func (s *script) extend(l *line, _ []string) string {
	label := l.word("a reservation")
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		return holdfast.Extend{
			ReservationID: id, LeaseToken: l.option("token"), TTL: l.duration("ttl"), Quantity: l.amount("quantity"), Usage: l.amounts("usage"),
		}
	})
}

func (s *script) inDoubt(l *line, _ []string) string {
	label := l.word("a reservation")
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		return holdfast.InDoubt{ReservationID: id, LeaseToken: l.option("token")}
	})
}

func (s *script) release(l *line, _ []string) string {
	label := l.word("a reservation")
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		return holdfast.Release{
			ReservationID: id, LeaseToken: l.option("token"), Cause: l.option("cause"), Retry: l.flag("back"), Unstarted: l.flag("unstarted"),
		}
	})
}

func (s *script) endLost(l *line, _ []string) string {
	return s.onReservation(l, l.word("a reservation"), func(id holdfast.ID) holdfast.Operation { return holdfast.EndLost{ReservationID: id} })
}

func (s *script) cancel(l *line, _ []string) string {
	return s.onReservation(l, l.word("a reservation"), func(id holdfast.ID) holdfast.Operation {
		return holdfast.Cancel{ReservationID: id}
	})
}

func (s *script) force(l *line, _ []string) string {
	label := l.word("a reservation")
	op := holdfast.Force{End: holdfast.Ending(l.word("an ending")), Reason: l.option("reason")}
	if len(l.words) > 0 {
		op.Amount = pointer(l.integer(l.word("an amount")))
	}
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		op.ReservationID = id
		return op
	})
}

func (s *script) refund(l *line, _ []string) string {
	label := l.word("a reservation")
	op := holdfast.Refund{Ended: holdfast.EndedPockets(l.option("ended")), Reason: l.option("reason")}
	if len(l.words) > 0 {
		op.Amount = pointer(l.integer(l.word("an amount")))
	}
	return s.onReservation(l, label, func(id holdfast.ID) holdfast.Operation {
		op.ReservationID = id
		return op
	})
}

func (s *script) expire(l *line, _ []string) string {
	return s.expireStatement(s.about(l, l.word("an account"), holdfast.Expire{}))
}

func (s *script) delete(l *line, _ []string) string {
	account := l.word("an account")
	return s.accountStatement(account, s.about(l, account, holdfast.DeleteAccount{}))
}

// provider is who told of a payment, where a script does not say.
const provider = "stars"

func (l *line) readProvider() string {
	if l.has("provider") {
		return l.option("provider")
	}
	return provider
}

// register notes that a name is about to lead to an account, and line=n how many lead to that name in a row.
func (s *script) register(l *line, _ []string) string {
	account, name := l.word("an account"), l.word("another name")
	op := holdfast.RegisterName{Named: holdfast.AccountIDOf(project, name)}
	if l.has("line") {
		op.Line = int(l.integer(l.option("line")))
	}
	return s.mergeStatement(name+" is a name of "+account, s.about(l, account, op))
}

// alias makes a name lead to an account.
func (s *script) alias(l *line, _ []string) string {
	account, alias := l.word("an account"), l.word("another name")
	return s.mergeStatement(alias+" leads to "+account, s.about(l, alias, holdfast.LinkAlias{Into: holdfast.AccountIDOf(project, account)}))
}

// merge lets the first account take the second one in: what it sends is on its way until it arrives.
func (s *script) merge(l *line, _ []string) string {
	account, from := l.word("an account"), l.word("an account to be taken in")
	op := holdfast.MergeInto{Into: holdfast.AccountIDOf(project, account)}
	if kept, ok := s.announcements[account+" "+from]; ok {
		op.Announced = kept
	} else if announced := s.submitted(l, s.command(from, "", holdfast.AnnounceMerge{Into: op.Into})); announced.Refused() {
		return s.mergeStatement("", announced)
	} else {
		op.Announced = s.stored(from).account.Merging.ID
	}
	return s.mergeStatement(from+" is merged into "+account, s.about(l, from, op))
}

// announce announces that the first account is about to take the second one in. What merge does for the two is by this
// announcement from then on, also where another one has taken its place.
func (s *script) announce(l *line, _ []string) string {
	account, from := l.word("an account"), l.word("an account to be taken in")
	said := s.submitted(l, s.command(from, "", holdfast.AnnounceMerge{Into: holdfast.AccountIDOf(project, account)}))
	if said.Changed {
		if s.announcements == nil {
			s.announcements = map[string]holdfast.ID{}
		}
		s.announcements[account+" "+from] = s.stored(from).account.Merging.ID
	}
	return s.mergeStatement(from+" is about to be merged into "+account, said)
}

// withdraw takes back what announce has announced.
func (s *script) withdraw(l *line, _ []string) string {
	account, from := l.word("an account"), l.word("an account to be taken in")
	said := s.submitted(l, s.command(from, "", holdfast.WithdrawMerge{ID: s.announcements[account+" "+from]}))
	return s.mergeStatement(from+" is not about to be merged into "+account, said)
}

func (s *script) mergeStatement(done string, outcome result) string {
	switch {
	case outcome.Reason == holdfast.Invalid:
		return "invalid: " + outcome.Problems[0].Field + ": " + outcome.Problems[0].Hint
	case outcome.Reason != "":
		return "refused " + string(outcome.Reason)
	case !outcome.Changed:
		return "unchanged: " + done
	}
	return done
}

// arrive lets what was sent on from an account arrive, twice, as after a crash in between.
func (s *script) arrive(l *line, _ []string) string {
	from := l.word("an account")
	id := holdfast.AccountIDOf(project, from)
	account := s.records[id].account
	var lines []string
	for _, transfer := range account.Transfers {
		switch {
		case len(transfer.Forget) > 0:
			lines = append(lines, s.forget(l, id, transfer.Forget)...)
		case len(transfer.Stop) > 0:
			lines = append(lines, s.stopWork(l, id, transfer.Stop))
		default:
			lines = append(lines, s.takeOver(l, account, transfer)...)
		}
		done := s.command("", "", holdfast.TransferDone{ID: transfer.ID})
		done.Target = id
		s.submitted(l, done)
	}
	if len(lines) == 0 {
		return "nothing is on its way"
	}
	return strings.Join(lines, "\n")
}

func (s *script) takeOver(l *line, from holdfast.Account, transfer holdfast.Transfer) (lines []string) {
	take := s.command("", holdfast.TransferKey(from.ID, transfer.ID), holdfast.TakeOver{From: from.ID, Transfer: transfer})
	take.Target = from.MergedInto
	for range 2 {
		done := s.submitted(l, take)
		line := "took over " + transferStatement(transfer)
		if done.Replayed {
			line = "took over before"
		}
		lines = append(lines, line)
		take.ID = s.command("", "", holdfast.Expire{}).ID // another attempt
	}
	return lines
}

func (s *script) forget(l *line, deleted holdfast.AccountID, names []holdfast.AccountID) (lines []string) {
	for _, name := range names {
		stored, known := s.records[name]
		if !known {
			lines = append(lines, "a name that nobody has is told")
			continue
		}
		before := stored.account.Name
		for range 2 {
			command := s.command("", "", holdfast.ForgetName{Into: deleted})
			command.Target = name
			lines = append(lines, s.forgotten(before, stored, s.submitted(l, command)))
		}
	}
	return lines
}

// stopWork asks every live reservation of the account to stop, twice.
func (s *script) stopWork(l *line, account holdfast.AccountID, grants []holdfast.ID) string {
	count := map[string]int{}
	for _, r := range slices.Clone(s.records[account].reservations) {
		if !r.Live() {
			continue
		}
		for range 2 {
			command := s.command("", "", holdfast.StopWork{ReservationID: r.ID, Grants: grants})
			command.Target = account
			switch outcome := s.submitted(l, command); {
			case !outcome.Changed:
				count["unchanged"]++
			case outcome.Reservation.State == holdfast.Running:
				count["asked to stop"]++
			default:
				count[string(outcome.Reservation.State)]++
			}
		}
	}
	return fmt.Sprintf("stopped what is left: %d released, %d asked to stop, %d unchanged", count["released"], count["asked to stop"], count["unchanged"])
}

// forgotten is told after the command, when the name is what it has become.
func (s *script) forgotten(before string, stored *record, outcome result) string {
	return s.mergeStatement(before+" is called "+stored.account.Name, outcome)
}

func transferStatement(t holdfast.Transfer) string {
	var words []string
	for i := range t.Grants {
		words = append(words, fmt.Sprintf("%d %s (%s)", t.Grants[i].Granted, t.Grants[i].Unit, t.Grants[i].Source))
	}
	for _, unit := range slices.Sorted(maps.Keys(t.Debts)) {
		words = append(words, fmt.Sprintf("a debt of %d %s", t.Debts[unit], unit))
	}
	for _, p := range t.Periods {
		words = append(words, fmt.Sprintf("%s for %s", p.Plan, p.End.Sub(p.Start)))
	}
	if t.Plan != "" {
		words = append(words, "the plan "+t.Plan)
	}
	for _, r := range t.Revokes {
		words = append(words, fmt.Sprintf("a refund of %d %s", r.Amount, r.Unit))
	}
	return strings.Join(words, ", ")
}

func (s *script) pay(l *line, _ []string) string {
	account := l.word("an account")
	return s.paymentStatement(s.about(l, account, holdfast.Pay{
		Provider: l.readProvider(), PaymentID: l.option("id"),
		Product: l.word("a product"), Amount: l.integer(l.word("an amount")), Currency: l.word("a currency"),
		PeriodEnd: l.moment("period_end"), Agreed: l.flag("agreed"), Stranger: l.flag("stranger"), Refunds: l.readRefunds(),
	}))
}

// readRefunds reads "r1:100,r2": refunds that came before their payment; without an amount, of all of it.
func (l *line) readRefunds() []holdfast.PaymentRefund {
	var refunds []holdfast.PaymentRefund
	for _, text := range l.list("refunds") {
		id, amount, partly := strings.Cut(text, ":")
		refund := holdfast.PaymentRefund{ID: id}
		if partly {
			refund.Amount = pointer(l.integer(amount))
		}
		refunds = append(refunds, refund)
	}
	return refunds
}

func (s *script) refundPayment(l *line, _ []string) string {
	account := l.word("an account")
	op := holdfast.RefundPayment{Provider: l.readProvider(), PaymentID: l.word("a payment")}
	op.Refund = holdfast.PaymentRefund{ID: l.option("id"), Dispute: l.flag("dispute"), Chosen: l.has("policy")}
	if policy := l.option("policy"); policy != "revoke_unused" { // the default, which has no word in Go
		op.Refund.Policy = holdfast.RefundPolicy(policy)
	}
	if len(l.words) > 0 {
		op.Refund.Amount = pointer(l.integer(l.word("an amount")))
	}
	return s.paymentStatement(s.about(l, account, op))
}

func (s *script) change(l *line, _ []string) string {
	account := l.word("an account")
	return s.accountStatement(account, s.about(l, account, holdfast.ChangePlan{Plan: l.word("a plan"), When: holdfast.When(l.option("when"))}))
}

func (s *script) cancelSubscription(l *line, _ []string) string {
	account := l.word("an account")
	return s.accountStatement(account, s.about(l, account, holdfast.CancelSubscription{}))
}

func (s *script) resume(l *line, _ []string) string {
	account := l.word("an account")
	return s.accountStatement(account, s.about(l, account, holdfast.ResumeSubscription{}))
}

// explain asks why, and writes nothing.
func (s *script) explain(l *line, _ []string) string {
	command := s.command(l.word("an account"), "", s.readReserve(l))
	state := s.load(command)
	explanation, found := holdfast.Explain(s.catalog, state, command, s.now)
	if _, changed := state.Changes(); changed {
		s.fail("explaining changed something")
	}
	return s.explanationStatement(explanation, found)
}

// useCatalog takes the example, or a catalog written in a few words:
//
//	catalog 2
//	  unit credit
//	  feature draw 1 image or 5 credit ttl=15m hold=2h cancel=request
//	  feature chat credit per=1000 rates=input:1,output:4 ttl=10m overrun=debt in_doubt=charge late=absorb
//	  surface bot ttl=30m
//	  plan free draw,chat free=chat active=2 gives="3 credit in 24h, 1 image in 48h"
//	  plan pro draw active=3 debt=credit:1 notice=5s low=credit:30 retired gives="300 credit every term rollover 150, 1 image every day"
//	  plan max draw active=3 upgrade=full grace=72h refund=keep running=stop gives="900 credit every term"
//	  product pro_30 plan=pro period=30d prices=XTR:250,USD:499      or period=1month
//	  product pack grant=credit:300 for=30d prices=XTR:250
//
// The first plan is the default one. Allowances come every day, week, month (of the calendar), anniversary or term.
func (s *script) useCatalog(l *line, detail []string) string {
	version := l.word("example, or a version")
	if made, ok := map[string]func() *holdfast.Catalog{"example": exampleCatalog, "sold": soldCatalog}[version]; ok {
		s.catalog = made()
		return fmt.Sprintf("catalog %d", s.catalog.Version)
	}
	catalog := &holdfast.Catalog{Version: int64(l.integer(version))}
	for _, text := range detail {
		part := s.parse(text)
		switch kind := part.word("a kind"); kind {
		case "unit":
			catalog.Units = append(catalog.Units, holdfast.Unit{Name: part.word("a name")})
		case "feature":
			catalog.Features = append(catalog.Features, part.readFeature())
		case "surface":
			catalog.Surfaces = append(catalog.Surfaces, holdfast.Surface{Name: part.word("a name"), TTL: part.duration("ttl")})
		case "plan":
			catalog.Plans = append(catalog.Plans, part.readPlan(len(catalog.Plans) == 0))
		case "product":
			catalog.Products = append(catalog.Products, part.readProduct())
		default:
			s.fail("a catalog has no %q", kind)
		}
		for _, word := range part.words {
			s.fail("word %q means nothing here", word)
		}
		for name := range part.options {
			s.fail("option %q means nothing here", name)
		}
	}
	s.catalog = catalog
	return fmt.Sprintf("catalog %d", catalog.Version)
}

func (l *line) readFeature() holdfast.Feature {
	feature := holdfast.Feature{Name: l.word("a name"), TTL: l.duration("ttl"), MaxHold: l.duration("hold")}
	feature.Policies = holdfast.Policies{
		Overrun:       holdfast.Overrun(l.option("overrun")),
		InDoubt:       holdfast.InDoubtPolicy(l.option("in_doubt")),
		LateCommit:    holdfast.LatePolicy(l.option("late")),
		CancelRunning: holdfast.CancelPolicy(l.option("cancel")),
	}
	for len(l.words) > 0 {
		word := l.word("an amount, or the unit of a price by usage")
		price := holdfast.Price{Unit: word}
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			price = holdfast.Price{Amount: holdfast.Amount(n), Unit: l.word("a unit")}
		} else {
			price.Per, price.Rates = l.integer(l.option("per")), l.amounts("rates")
		}
		feature.Prices = append(feature.Prices, price)
		l.flag("or")
	}
	return feature
}

func (l *line) readPlan(isDefault bool) holdfast.Plan {
	plan := holdfast.Plan{Name: l.word("a name"), Default: isDefault, Retired: l.flag("retired")}
	plan.Features = strings.Split(l.word("features"), ",")
	plan.FreeFeatures = l.list("free")
	plan.MaxActive = int(l.integer(l.option("active")))
	plan.QueueNoticeAfter, plan.LowBalance = l.duration("notice"), l.amounts("low")
	plan.DebtLimits = l.amounts("debt")
	plan.Upgrade, plan.Grace = holdfast.UpgradePolicy(l.option("upgrade")), l.duration("grace")
	plan.Refund, plan.RunningOnRefund = holdfast.RefundPolicy(l.option("refund")), holdfast.RunningPolicy(l.option("running"))
	if !l.has("gives") {
		return plan
	}
	for _, text := range strings.Split(l.option("gives"), ", ") {
		plan.Allowances = append(plan.Allowances, l.readAllowance(plan, strings.Fields(text)))
	}
	return plan
}

func (l *line) readProduct() holdfast.Product {
	product := holdfast.Product{Name: l.word("a name"), Plan: l.option("plan"), Period: l.period("period")}
	for unit, amount := range l.amounts("grant") {
		product.Grant = &holdfast.ProductGrant{Unit: unit, Amount: amount, For: l.period("for")}
	}
	for _, price := range l.list("prices") {
		currency, amount, _ := strings.Cut(price, ":")
		product.Prices = append(product.Prices, holdfast.Money{Currency: currency, Amount: l.integer(amount)})
	}
	return product
}

// period reads 30d or 1month.
func (l *line) period(name string) holdfast.Period {
	text := l.option(name)
	days, isDays := strings.CutSuffix(text, "d")
	months, isMonths := strings.CutSuffix(text, "month")
	switch {
	case isDays:
		return holdfast.Period{Days: int(l.integer(days))}
	case isMonths:
		return holdfast.Period{Months: int(l.integer(months))}
	}
	return holdfast.Period{}
}

// readAllowance reads "3 credit in 24h" or "300 credit every term rollover 150".
func (l *line) readAllowance(plan holdfast.Plan, words []string) holdfast.Allowance {
	if len(words) == 6 && words[4] == "rollover" {
		a := l.readAllowance(plan, words[:4])
		a.Rollover = l.integer(words[5])
		return a
	}
	if len(words) != 4 {
		l.s.fail("an allowance is written \"3 credit in 24h\" or \"300 credit every term rollover 150\"")
	}
	a := holdfast.Allowance{Key: plan.Name + "." + words[1], Unit: words[1], Amount: l.integer(words[0])}
	if words[2] == "in" {
		every, err := time.ParseDuration(words[3])
		if err != nil {
			l.s.fail("%v", err)
		}
		a.Key += "." + words[3]
		a.Every = holdfast.Cycle{Rolling: every}
		return a
	}
	switch words[3] {
	case "anniversary":
		a.Every.Anniversary = true
	case "term":
		a.Every.Term = true
	default:
		a.Every.Calendar = holdfast.Calendar(words[3])
	}
	if slices.ContainsFunc(plan.Allowances, func(other holdfast.Allowance) bool { return other.Key == a.Key }) {
		a.Key += "#2"
	}
	return a
}
