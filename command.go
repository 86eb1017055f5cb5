package holdfast

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Command asks for one change of one account. Whatever changes money is a command: a request, the sweeper's expiry, an
// operator's correction.
type Command struct {
	// ID is a fresh UUIDv7 with its last two bytes zero, the same for every attempt at this command.
	ID ID
	// Project is whose account is meant; commands never reach another project's.
	Project string
	// Account is set by whoever knows the account's name. Where a reservation's public id was given, Target is set instead.
	Account string
	Target  AccountID
	// Key is the sender's promise: the same intention has the same key. Commands that create need one.
	Key string
	// RetryRefused asks for a fresh decision where a refusal is recorded under the key.
	RetryRefused bool
	// Actor is written into the ledger: an API key, the sweeper, the command line.
	Actor string
	Do    Operation
}

// AccountID is the account that the command is about.
func (c *Command) AccountID() AccountID {
	if c.Account != "" {
		return AccountIDOf(c.Project, c.Account)
	}
	return c.Target
}

// Operation is what a command does: one of the types below.
type Operation interface {
	// Name is the operation's word, as in the API.
	Name() string
	// Reservation is the one that must be loaded; zero: none.
	reservation() ID
	// creates reports whether the operation makes something, and so needs a key.
	creates() bool
	// check finds what is wrong without looking at anything but the operation itself.
	check(p *problems)
	// checkCatalog finds what is wrong in the light of the catalog.
	checkCatalog(c *Catalog, p *problems)
	// print writes what tells this request apart from others.
	print(f *printer)
	// decide does it, or says why not.
	decide(d *decision) Outcome
}

// ReservationOf is the id of the reservation that the operation names; zero: none.
func ReservationOf(op Operation) ID { return op.reservation() }

// OpensAccount reports whether the operation creates an unknown account: reserving does, and putting one. A grant to a
// misspelt name does not.
func OpensAccount(op Operation) bool {
	switch op := op.(type) {
	case Reserve, Charge:
		return !IsDryRun(op)
	case PutAccount:
		return true
	case Pay:
		return !op.Stranger
	case LinkAlias:
		return true
	}
	return false
}

// PaymentOf is the id of the payment that the operation names, which is loaded with all grants that it bought; zero: none.
func PaymentOf(op Operation, account AccountID) ID {
	if named, ok := op.(interface{ payment(AccountID) ID }); ok {
		return named.payment(account)
	}
	return ID{}
}

// LoadsOverdue says which live reservations the operation may end besides the one that it names: those whose ExpiresAt is
// at or before the time. Zero: none.
func LoadsOverdue(op Operation, now time.Time) time.Time {
	switch op := op.(type) {
	case Reserve, Charge, Extend, Expire:
		return now
	case DeleteAccount, ForgetName, RefundPayment:
		return endOfTime
	case Pay: // its refunds may stop what runs
		if len(op.Refunds) > 0 {
			return endOfTime
		}
	}
	return time.Time{}
}

// endOfTime is later than any reservation expires.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// IsDryRun reports whether the operation only asks what would happen.
func IsDryRun(op Operation) bool {
	switch op := op.(type) {
	case Reserve:
		return op.DryRun
	case Charge:
		return op.DryRun
	}
	return false
}

// base gives operations the answers that most of them share.
type base struct{}

func (base) reservation() ID                  { return ID{} }
func (base) creates() bool                    { return false }
func (base) check(*problems)                  {}
func (base) checkCatalog(*Catalog, *problems) {}
func (base) print(*printer)                   {}

// Check finds everything that is wrong with the command's shape, the key included. Fields are named as in the API.
func (c *Command) Check() []Problem {
	var p problems
	if c.Account != "" || c.Target.IsZero() {
		p.name("account", c.Account)
	}
	if c.Key != "" || c.needsKey() {
		p.key("key", c.Key)
	}
	c.Do.check(&p)
	return p.list
}

func (c *Command) needsKey() bool {
	return c.Do.creates() && !IsDryRun(c.Do)
}

// Fingerprint tells this request apart from others under the same key.
func (c *Command) Fingerprint() Fingerprint {
	f := &printer{written: make([]byte, 0, 256)}
	f.text("operation", c.Do.Name())
	c.Do.print(f)
	return f.sum()
}

// printer writes a canonical form: each part with its name and length, so that no two requests look alike.
type printer struct{ written []byte }

func (f *printer) text(name, value string) {
	f.written = append(append(f.written, name...), ':')
	f.written = append(strconv.AppendInt(f.written, int64(len(value)), 10), ':')
	f.written = append(append(f.written, value...), ';')
}

func (f *printer) amount(name string, value Amount) {
	f.text(name, strconv.FormatInt(int64(value), 10))
}

func (f *printer) optional(name string, value *Amount) {
	if value != nil {
		f.amount(name, *value)
	}
}

func (f *printer) time(name string, at time.Time) {
	if !at.IsZero() {
		f.text(name, strconv.FormatInt(at.UnixMicro(), 10))
	}
}

// amounts writes counts of kinds; a zero is what is left out.
func (f *printer) amounts(name string, values map[string]Amount) {
	if len(values) == 0 {
		return
	}
	for _, kind := range sortedKeys(values) {
		if values[kind] != 0 {
			f.amount(name+"."+kind, values[kind])
		}
	}
}

func (f *printer) sum() Fingerprint {
	hash := sha256.Sum256(f.written)
	return Fingerprint(hash[:len(Fingerprint{})])
}

// problems collects everything wrong with a request.
type problems struct{ list []Problem }

func (p *problems) add(field, hint string) { p.list = append(p.list, Problem{field, hint}) }

func (p *problems) key(field, key string) {
	switch {
	case strings.TrimSpace(key) == "":
		p.add(field, "send the key that you will send again if you must repeat this call, for example a message id")
	case len(key) > MaxKeyBytes:
		p.add(field, fmt.Sprintf("use at most %d bytes", MaxKeyBytes))
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		p.add(field, "use valid UTF-8 without NUL")
	}
}

func (p *problems) name(field, name string) {
	if hint := nameHint(name); hint != "" {
		p.add(field, hint)
	}
}

// ValidName reports whether the text can name an account.
func ValidName(name string) bool { return nameHint(name) == "" }

func nameHint(name string) string {
	switch {
	case name == "":
		return "name the account, for example telegram:42"
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("use at most %d bytes", MaxNameBytes)
	case !utf8.ValidString(name):
		return "use valid UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("/?#%", r)
	}):
		return "use no control characters, spaces or / ? # %"
	}
	return ""
}

// ValidIdentifier reports whether the text can be a word of the catalog: a feature, a unit, a plan, a cause.
func ValidIdentifier(word string) bool {
	return validWord(word, MaxIdentifierBytes)
}

// ValidProject reports whether the text can name a project.
func ValidProject(name string) bool { return validWord(name, MaxProjectBytes) }

func validWord(word string, most int) bool {
	return word != "" && len(word) <= most && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}

func (p *problems) word(field, word string) {
	if !ValidIdentifier(word) {
		p.add(field, fmt.Sprintf("use 1 to %d of a-z 0-9 . _ -", MaxIdentifierBytes))
	}
}

func (p *problems) positive(field string, amount Amount) {
	if amount < 1 || amount > MaxAmount {
		p.add(field, fmt.Sprintf("use an integer from 1 to %d", MaxAmount))
	}
}

func (p *problems) notNegative(field string, amount *Amount) {
	if amount != nil && (*amount < 0 || *amount > MaxAmount) {
		p.add(field, fmt.Sprintf("use an integer from 0 to %d", MaxAmount))
	}
}

func (p *problems) sentence(field, text string, required bool) {
	switch {
	case required && strings.TrimSpace(text) == "":
		p.add(field, "say why; whoever reads the history will want to know")
	case len(text) > MaxReasonBytes:
		p.add(field, fmt.Sprintf("use at most %d bytes", MaxReasonBytes))
	case !printable(text):
		p.add(field, "use valid UTF-8 without control characters")
	}
}

func (p *problems) text(field, text string, most int) {
	if len(text) > most || !printable(text) {
		p.add(field, fmt.Sprintf("use at most %d bytes of valid UTF-8 without control characters", most))
	}
}

func (p *problems) metadata(field string, pairs map[string]string) {
	if len(pairs) > MaxMetadataPairs {
		p.add(field, fmt.Sprintf("use at most %d pairs", MaxMetadataPairs))
		return
	}
	for _, name := range sortedKeys(pairs) {
		if name == "" || len(name) > MaxMetadataName || len(pairs[name]) > MaxMetadataValue || !printable(name) ||
			!utf8.ValidString(pairs[name]) || strings.ContainsRune(pairs[name], 0) {
			p.add(field, fmt.Sprintf("use names of 1 to %d and values of at most %d bytes, valid UTF-8 without NUL", MaxMetadataName, MaxMetadataValue))
			return
		}
	}
}

func (p *problems) usage(field string, usage map[string]Amount) {
	if len(usage) > MaxUsageKinds {
		p.add(field, fmt.Sprintf("use at most %d kinds", MaxUsageKinds))
		return
	}
	for _, kind := range sortedKeys(usage) {
		if !ValidIdentifier(kind) {
			p.add(field, fmt.Sprintf("name a kind with 1 to %d of a-z 0-9 . _ -", MaxIdentifierBytes))
			return
		}
		count := usage[kind]
		p.notNegative(field+"."+kind, &count)
	}
}

func (p *problems) duration(field string, length, least, most time.Duration) {
	if length != 0 && (length < least || length > most) {
		p.add(field, fmt.Sprintf("use %d to %d seconds", int64(least.Seconds()), int64(most.Seconds())))
	}
}

func (p *problems) token(field, token string) {
	if len(token) > MaxTokenBytes || !printable(token) {
		p.add(field, "send the lease_token that start answered")
	}
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
