package engine

import (
	"errors"
	"maps"

	"github.com/holdfast-dev/holdfast"
)

// quarantine takes an account out of service: what is stored of it, or what was decided about it, breaks a rule. Its
// commands get Unavailable until a restart or Clear. Everybody else goes on.
func (e *Engine) quarantine(account holdfast.AccountID, cause string) {
	e.mu.Lock()
	e.quarantined[account] = cause
	many := len(e.quarantined) > holdfast.MaxQuarantined
	e.mu.Unlock()
	e.log.Error("account quarantined: run holdfast verify, and report this", "account", account.String(), "cause", cause)
	if many {
		e.fail(errors.New("too many accounts are quarantined"))
	}
}

// Quarantined lists the accounts that are out of service, and why.
func (e *Engine) Quarantined() map[holdfast.AccountID]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.quarantined)
}

// Clear puts an account back into service.
func (e *Engine) Clear(account holdfast.AccountID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.quarantined, account)
}

// refused says why an account is out of service, or nil.
func (e *Engine) refused(account holdfast.AccountID) *Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, bad := e.quarantined[account]; bad {
		return outOfService()
	}
	return nil
}

func outOfService() *Error {
	return &Error{Code: Unavailable, Hint: "this account is out of service until an operator has looked at it; nothing happened"}
}
