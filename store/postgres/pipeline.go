package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/store"
)

// pipeline is a list of statements that are sent together and answered together: one round trip, however many they are.
// The server stops at the first that fails, and runs none of those behind it.
type pipeline struct{ steps []step }

type step struct {
	text      string
	arguments []any
	visit     func(pgx.Rows) error // of every row; nil: rows are of no interest
	ended     func(tag string) error
	means     map[string]*meaning // what a code means in this statement
}

// then adds a statement.
func (p *pipeline) then(text string, arguments ...any) *step {
	p.steps = append(p.steps, step{text: text, arguments: arguments})
	return &p.steps[len(p.steps)-1]
}

// read adds a statement whose rows are visited.
func (p *pipeline) read(visit func(pgx.Rows) error, text string, arguments ...any) {
	p.then(text, arguments...).visit = visit
}

// meaning says what a code means where this statement fails with it.
func (s *step) meaning(code string, kind store.Kind, rule error) {
	s.means = map[string]*meaning{code: {kind: kind, rule: rule}}
}

// sender is a connection, or a transaction of the caller.
type sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// run sends all and reads all. The error is that of the first statement that failed.
func (p *pipeline) run(ctx context.Context, through sender) (err error) {
	batch := &pgx.Batch{}
	for _, s := range p.steps {
		batch.Queue(s.text, s.arguments...)
	}
	results := through.SendBatch(ctx, batch)
	for i := range p.steps {
		if err = p.steps[i].result(results); err != nil {
			break
		}
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	return err
}

func (s *step) result(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err == nil {
		err = collect(rows, s.visit)
	}
	if err == nil && s.ended != nil {
		return s.ended(rows.CommandTag().String())
	}
	if meant, ok := s.means[codeOf(err)]; ok {
		return &meaning{kind: meant.kind, rule: meant.rule, cause: err}
	}
	return err
}

// collect visits the rows of a result. Its error is the driver's, or errRow.
func collect(rows pgx.Rows, visit func(pgx.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if visit == nil {
			continue
		}
		if err := visit(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
