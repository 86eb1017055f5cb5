package redistest

import (
	"os"
	"strings"
	"testing"
)

func TestAServerIsStartedKilledAndStartedAgainAtTheSameAddress(t *testing.T) {
	s := Start(t)
	address := s.Address()
	if line := s.ping(); line != "+PONG\r\n" {
		t.Errorf("it answers %q", line)
	}
	s.Kill(t)
	if line := s.ping(); line != "" {
		t.Errorf("after Kill it answers %q", line)
	}
	s.Run(t)
	if line := s.ping(); line != "+PONG\r\n" || s.Address() != address {
		t.Errorf("after Run %s answers %q, it was at %s", s.Address(), line, address)
	}
}

func TestNothingOfAServerIsLeftBehind(t *testing.T) {
	var s *Server
	t.Run("a test", func(t *testing.T) { s = Start(t) })
	if s == nil {
		t.Skip("the server was skipped")
	}
	if _, err := os.Stat(s.directory); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
	if line := s.ping(); line != "" {
		t.Errorf("it still answers %q", line)
	}
}

func TestAProgramThatIsNoRedisServerIsToldSo(t *testing.T) {
	if _, err := versionOf(os.Args[0]); err == nil || !strings.Contains(err.Error(), "--version") && !strings.Contains(err.Error(), "no Redis server") {
		t.Errorf("of this test: %v", err)
	}
}
