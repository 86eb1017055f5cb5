package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
)

// The tests run this program as its reader does: as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("AS_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestWhatIsHandedOverIsFinishedAndChargedByUsageOnce(t *testing.T) {
	sold := catalog.Embedded()
	s := apitest.Start(t, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }})
	submit := func(key string, do holdfast.Operation) holdfast.Outcome {
		t.Helper()
		o, err := s.Engine.Submit(t.Context(), holdfast.Command{Project: apitest.Project, Account: "web:rich", Key: key, Do: do})
		if err != nil || o.Refused() {
			t.Fatalf("%s %v %v", o.Reason, o.Problems, err)
		}
		return o
	}
	submit("", holdfast.PutAccount{})
	submit("", holdfast.SetPlan{Plan: "pro"})
	var handed strings.Builder
	for n := range 2 {
		o := submit(fmt.Sprint("press-", n), holdfast.Reserve{Feature: "chat.completion", Usage: map[string]holdfast.Amount{"input_token": 1200, "output_token": 4096}})
		id := holdfast.ReservationRef.Encode(o.Owner.ID, o.Reservation.ID)
		handed.WriteString(id + "\n")
		if n == 0 {
			handed.WriteString(id + "\n") // a queue may deliver twice
		}
	}
	example := exec.Command(os.Args[0], "-server", s.URL)
	example.Env = append(os.Environ(), "AS_EXAMPLE=1", "API_KEY="+apitest.Key)
	example.Stdin, example.Stderr = strings.NewReader(handed.String()+"nonsense\n"), os.Stderr
	out, err := example.Output()
	if want := "charged 9 of 18\nnot mine: already_ended\ncharged 9 of 18\nnot mine: not_found\n"; err != nil || string(out) != want {
		t.Errorf("%q %v, want %q", out, err, want)
	}
	view, err := s.Engine.View(t.Context(), apitest.Project, "web:rich")
	if err != nil || view.Balances[0].Available != 300-9-9 || view.Balances[0].Reserved != 0 || view.Account.Active != 0 {
		t.Errorf("%+v %v", view, err)
	}
}
