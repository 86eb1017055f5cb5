package catalog

import (
	"fmt"

	"github.com/holdfast-dev/holdfast"
)

// InUse is what accounts hold of a catalog.
type InUse struct {
	Plans map[string]int64 // how many accounts were set to the plan; those that were set to none do not count
	Units map[string]int64 // how many accounts have open grants of the unit
}

// Missing refuses a catalog that drops what accounts hold. The error is always Problems, one per unit and plan of before
// that is in use and that after does not have, in before's order; they have no position, since what they tell of is not
// in the file. It is nil where after can take before's place.
func Missing(before, after *holdfast.Catalog, used InUse) error {
	var problems Problems
	for i := range before.Units {
		name := before.Units[i].Name
		if _, kept := after.Unit(name); !kept && used.Units[name] > 0 {
			problems = append(problems, Problem{
				Path:       join("units", name),
				Message:    fmt.Sprintf("unit %s is removed, and %s open grants of it", name, accounts(used.Units[name], "has", "have")),
				Suggestion: "keep it in the file",
			})
		}
	}
	for i := range before.Plans {
		name := before.Plans[i].Name
		if _, kept := after.Plan(name); !kept && used.Plans[name] > 0 {
			problems = append(problems, Problem{
				Path:       join("plans", name),
				Message:    fmt.Sprintf("plan %s is removed, and %s on it", name, accounts(used.Plans[name], "is", "are")),
				Suggestion: "keep it with retired: true",
			})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}

func accounts(n int64, one, many string) string {
	if n == 1 {
		return "1 account " + one
	}
	return fmt.Sprintf("%d accounts %s", n, many)
}
