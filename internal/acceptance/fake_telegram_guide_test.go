package acceptance

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestEveryLineOfTheGuideToTheStandInForTelegramIsAnswered(t *testing.T) {
	for _, needed := range []string{"sh", "curl", "grep"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("the guide's lines need %s: %v", needed, err)
		}
	}
	page, err := os.ReadFile("../../docs/guides/fake-telegram.md")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, "", nil, "fake-telegram", "--listen", "127.0.0.1:0")
	shell := func(line string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "sh", "-c", line)
		command.Env = append(os.Environ(), "no_proxy=*", "H="+s.url+"/sim")
		out, err := command.CombinedOutput()
		if err != nil && !strings.Contains(line, "| grep") { // which finds nothing where nothing was bought
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	shell(`curl -s ` + s.url + `/bot7000001:any/getMe`) // a bot has come
	// What a person cannot do where no bot has written to them, and what the page leaves for its reader to fill in.
	expected := regexp.MustCompile(`there is no such (button|invoice|subscription)`)
	played := 0
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			if !strings.HasPrefix(line, "curl ") {
				continue
			}
			played++
			if out := shell(line); strings.Contains(out, `"error"`) && !expected.MatchString(out) {
				t.Errorf("%s answers %s", strings.TrimSpace(line), out)
			}
		}
	}
	if played < 12 {
		t.Errorf("only %d lines were found, so this test looks in the wrong place", played)
	}
	if seen := shell("curl -s $H/chats/42"); !strings.Contains(seen, `"first_name":"Anna"`) || !strings.Contains(seen, `"blocked":true`) {
		t.Errorf("what the lines did is not there: %s", seen)
	}
}
