package memory_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

func TestMemoryIsAStore(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T) storetest.Opened {
		s := memory.Open()
		t.Cleanup(func() { _ = s.Close() })
		return storetest.Opened{
			Store: s,
			Events: func(t *testing.T, account holdfast.AccountID) []holdfast.Event {
				events, err := s.Events(t.Context(), account)
				if err != nil {
					t.Fatal(err)
				}
				return events
			},
		}
	})
}

func TestMemoryKeepsWhatTheEdgesNeed(t *testing.T) {
	storetest.ExerciseLookups(t, func(*testing.T) store.Lookups { return memory.Open() })
}

func TestMemoryKeepsWhatTheRelayNeeds(t *testing.T) {
	storetest.ExerciseOutbox(t, func(*testing.T) storetest.OutboxStore { return memory.Open() })
}

func TestMemoryKeepsWhatBotsNeed(t *testing.T) {
	storetest.ExerciseTelegram(t, func(*testing.T) storetest.TelegramStore { return memory.Open() })
}
