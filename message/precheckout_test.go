package message

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

func TestEveryReasonOfAPreCheckoutHasATextOfItsOwn(t *testing.T) {
	texts, ours := newTexts(t), PreCheckoutReasons()
	for i, reason := range telegramstars.Reasons() {
		if i >= len(ours) || string(ours[i]) != string(reason) {
			t.Fatalf("%s is not among %v, or stands elsewhere", reason, ours)
		}
	}
	if n := len(telegramstars.Reasons()); n != len(ours) {
		t.Errorf("%d reasons have texts, and there are %d", len(ours), n)
	}
	for _, reader := range []Reader{english(), russian()} {
		told := map[string]PreCheckoutReason{}
		for _, reason := range ours {
			text := texts.PreCheckout(reader, reason, time.Time{}, noon)
			if other, twice := told[text]; twice {
				t.Errorf("%s and %s are both told as %q", reason, other, text)
			}
			told[text] = reason
		}
		if got, want := texts.PreCheckout(reader, "of_tomorrow", time.Time{}, noon), texts.PreCheckout(reader, PayTryAgain, time.Time{}, noon); got != want {
			t.Errorf("an unknown reason is told as %q", got)
		}
	}
}

func TestTheEndOfWhatIsPaidIsToldOnlyWhereItLiesAhead(t *testing.T) {
	texts := newTexts(t)
	for until, want := range map[time.Time]string{
		reset:                     "You have this plan already, and would pay twice for the same time. What is paid ends on 14 December at 12:12.",
		noon.Add(3 * time.Hour):   "You have this plan already, and would pay twice for the same time. What is paid ends in 3 hours.",
		noon:                      "You have this plan already, and would pay twice for the same time.",
		noon.Add(-24 * time.Hour): "You have this plan already, and would pay twice for the same time.",
		{}:                        "You have this plan already, and would pay twice for the same time.",
	} {
		if got := texts.PreCheckout(english(), PayAlreadySubscribed, until, noon); got != want {
			t.Errorf("until %v: %q", until, got)
		}
	}
	if got := texts.PreCheckout(russian(), PayOrderPaid, reset, noon); strings.Contains(got, "декабря") {
		t.Errorf("another reason tells an end: %q", got)
	}
}

func TestAnOperatorsWordsStopAPaymentToo(t *testing.T) {
	texts, err := NewWith(fstest.MapFS{"ru.json": {Data: []byte(`{"precheckout.paid_until": "Оплачено, конец {{.When}}."}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := texts.PreCheckout(russian(), PayAlreadySubscribed, reset, noon); !strings.HasSuffix(got, "Оплачено, конец 14 декабря в 12:12.") {
		t.Errorf("%q", got)
	}
}
