package main

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

type verifyCommand struct{ databaseFlags }

func (c verifyCommand) Run(ctx context.Context, t *terminal) error {
	db, err := c.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	result, err := verify(ctx, db)
	if err != nil {
		return err
	}
	for _, difference := range result.differences {
		if _, err := fmt.Fprintln(t.out, difference); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(t.out, result); err != nil {
		return err
	}
	if len(result.differences) > 0 {
		return errDifferent
	}
	return nil
}

type verified struct {
	accounts    int
	differences []string
}

func (v verified) String() string {
	if len(v.differences) == 0 {
		return fmt.Sprintf("verify: every ledger adds up (accounts: %d)", v.accounts)
	}
	return fmt.Sprintf("verify: differences: %d (accounts: %d)", len(v.differences), v.accounts)
}

// verify proves every account's ledger in one snapshot. It needs no catalog.
func verify(ctx context.Context, db store.Store) (verified, error) {
	var v verified
	err := db.Dump(ctx, func(r store.Record) error {
		v.accounts++
		found, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range found {
			v.differences = append(v.differences, fmt.Sprintf("%s/%s (%s): %s", r.Account.Project, r.Account.Name, r.Account.ID, difference))
		}
		return err
	})
	return v, err
}
