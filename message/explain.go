package message

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Step is what to tell about one check of an explanation, in a language that Match returned.
func (t *Texts) Step(language string, catalog *holdfast.Catalog, step holdfast.Step) string {
	w := t.writer(Reader{Language: language}, catalog, time.Time{})
	switch {
	case step.Check == holdfast.CheckPrice && step.Needed == 0:
		w.say("free", nil)
	case step.Check == holdfast.CheckPrice:
		w.price(&step)
	case step.Check == holdfast.CheckSlot:
		w.say("explain.slot", values{"Active": w.count(step.Active), "Limit": w.count(step.MaxActive)})
	case step.Check == holdfast.CheckAccount && step.Passed:
		w.say("explain.account.passed", nil)
	case step.Check == holdfast.CheckAccount:
		w.say("explain.account.failed", nil)
	case step.Check == holdfast.CheckPlan && step.Passed:
		w.say("explain.plan.passed", nil)
	case step.Check == holdfast.CheckPlan:
		w.say("explain.plan.failed", nil)
	}
	return w.text()
}

func (w *writer) price(step *holdfast.Step) {
	v := values{"Needed": w.quantity(step.Needed, step.Unit), "Available": w.quantity(step.Available, step.Unit)}
	if step.Held > 0 {
		v["Held"] = w.quantity(step.Held, step.Unit)
		w.say("explain.held", v)
		return
	}
	w.say("explain.price", v)
}
