package holdfast

import (
	"fmt"
)

// Check proves what must hold in a loaded or decided state, as far as it can be seen there. The engine takes an account
// that fails it out of service.
func (s *State) Check() error {
	seen := map[ID]bool{}
	for _, g := range s.Grants {
		if seen[g.ID] {
			return fmt.Errorf("grant %s is there twice", g.ID)
		}
		seen[g.ID] = true
		if g.Granted <= 0 || g.Granted > MaxAmount || g.Reserved < 0 || g.Used < 0 || g.Voided < 0 || g.Available() < 0 {
			return fmt.Errorf("grant %s: granted %d, reserved %d, used %d, voided %d do not fit", g.ID, g.Granted, g.Reserved, g.Used, g.Voided)
		}
		if g.Doomed < 0 || g.Doomed > g.Reserved || g.Revoked < g.Doomed || g.Revoked > g.Granted {
			return fmt.Errorf("grant %s: %d to be taken back of %d held, %d taken back of %d", g.ID, g.Doomed, g.Reserved, g.Revoked, g.Granted)
		}
		if g.Rolled < 0 || g.Moved < 0 || g.Rolled+g.Moved > g.Voided {
			return fmt.Errorf("grant %s: %d carried over and %d moved of %d voided", g.ID, g.Rolled, g.Moved, g.Voided)
		}
		if !g.Open && (g.Reserved > 0 || g.Available() > 0) {
			return fmt.Errorf("grant %s is closed with %d held and %d available", g.ID, g.Reserved, g.Available())
		}
	}
	held := map[ID]Amount{}
	for _, r := range s.Reservations {
		var reserved, used, refunded Amount
		for _, a := range r.Allocations {
			if !seen[a.Grant] {
				return fmt.Errorf("reservation %s: its grant %s is not loaded", r.ID, a.Grant)
			}
			reserved, used, refunded = reserved+a.Reserved, used+a.Used, refunded+a.Refunded
			if r.Live() {
				held[a.Grant] += a.Reserved
			}
		}
		if forgiven := r.refundedDebt(); reserved != r.Reserved || used != r.Charged() || refunded > used || forgiven < 0 || forgiven > r.Debt {
			return fmt.Errorf("reservation %s: reserved %d, used %d, late %d, refunded %d do not fit its allocations", r.ID, r.Reserved, r.Used, r.LateUsed, r.Refunded)
		}
		if r.Unbilled < 0 || r.Debt < 0 || r.Policies.Overrun == OverrunCap && r.Used > r.Reserved || r.Policies.Overrun != OverrunDebt && r.Debt > 0 {
			return fmt.Errorf("reservation %s: used %d, owed %d, not charged %d of %d do not fit its policy", r.ID, r.Used, r.Debt, r.Unbilled, r.Reserved)
		}
		if job := r.Job; job != nil && (job.Queue == "" || job.Crashes < 0 || job.Errors < 0 || job.Crashes+job.Errors > job.MaxAttempts) {
			return fmt.Errorf("reservation %s: its job has crashed %d times and failed %d times of %d", r.ID, job.Crashes, job.Errors, job.MaxAttempts)
		}
		if r.InDoubt && r.State != Running {
			return fmt.Errorf("reservation %s is %s and in doubt", r.ID, r.State)
		}
		if r.Live() != r.EndedAt.IsZero() {
			return fmt.Errorf("reservation %s is %s and ended at %s", r.ID, r.State, r.EndedAt)
		}
	}
	for _, g := range s.Grants {
		if held[g.ID] > g.Reserved {
			return fmt.Errorf("grant %s holds %d, its live reservations %d", g.ID, g.Reserved, held[g.ID])
		}
	}
	for _, unit := range sortedKeys(s.Account.Debts) {
		if owed := s.Account.Debts[unit]; owed <= 0 || owed > MaxAmount {
			return fmt.Errorf("account owes %d %s", owed, unit)
		}
	}
	if s.Account.Active < 0 {
		return fmt.Errorf("account has %d active reservations", s.Account.Active)
	}
	return nil
}
