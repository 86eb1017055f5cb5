package telegram

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
)

// operatorsOnly hides a command from everybody else: for them it does not exist.
func (s *Shop) operatorsOnly(handle Handler) Handler {
	return func(ctx context.Context, turn *Turn) error {
		if !slices.Contains(s.options.Operators, turn.User.ID) {
			return s.unknown(ctx, turn)
		}
		return handle(ctx, turn)
	}
}

// grant gives an account something: /grant 42 100 credit sorry for the wait. The account must exist. A message that is
// delivered twice gives it once.
func (s *Shop) grant(ctx context.Context, turn *Turn) error {
	words := strings.Fields(turn.Argument)
	answer := func(text string) error { return s.say(ctx, turn, text, nil) }
	if len(words) < 3 {
		return answer(s.texts().Operator(turn.Reader, message.GrantUsage, ""))
	}
	account := words[0]
	if user, err := strconv.ParseInt(account, 10, 64); err == nil && user > 0 {
		account = AccountName(user)
	}
	amount, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil || amount < 1 || !holdfast.ValidName(account) {
		return answer(s.texts().Operator(turn.Reader, message.GrantUsage, ""))
	}
	reason := strings.Join(words[3:], " ")
	if reason == "" {
		reason = "granted by an operator of the bot"
	}
	outcome, err := s.kit.submit(ctx, account, holdfast.Command{Key: turn.Key("grant"), Do: holdfast.AddGrant{
		Unit: words[2], Amount: holdfast.Amount(amount), Reason: reason,
	}})
	switch {
	case err != nil:
		return err
	case outcome.Reason == holdfast.Invalid:
		about := make([]string, len(outcome.Problems))
		for i, problem := range outcome.Problems {
			about[i] = problem.Field + ": " + problem.Hint
		}
		return answer(s.texts().Operator(turn.Reader, message.OperatorRefused, strings.Join(about, "; ")))
	case outcome.Reason != "":
		return answer(s.texts().Operator(turn.Reader, message.OperatorRefused, account+", "+string(outcome.Reason)))
	}
	s.kit.log().Info("an operator has granted", "bot", s.kit.options.Bot, "operator", turn.User.ID, "account", account, "unit", words[2], "amount", amount, "replayed", outcome.Replayed)
	return answer(s.texts().Granted(turn.Reader, s.kit.catalog(), account, outcome, s.now()))
}

// refund gives a payment back: /refund NUMBER. It is asked for once, and the operator is told when Telegram has answered.
func (s *Shop) refund(ctx context.Context, turn *Turn) error {
	words := strings.Fields(turn.Argument)
	answer := func(a message.Answer, about string) error {
		return s.say(ctx, turn, s.texts().Operator(turn.Reader, a, about), nil)
	}
	if len(words) < 1 || len(words) > 2 || s.options.Stars == nil {
		return answer(message.RefundUsage, "")
	}
	wanted := refund{Charge: words[0], Operator: turn.User.ID}
	paid, err := s.options.Stars.Book.Payment(ctx, wanted.Charge)
	if err != nil {
		return err
	}
	known, found, err := note[receipt](ctx, s.kit, chargeKey(wanted.Charge))
	switch {
	case err != nil:
		return err
	case paid != nil && paid.Refunded == paid.Amount && paid.Amount > 0:
		return answer(message.RefundWasDone, wanted.Charge)
	case found:
		wanted.User = known.User
	case len(words) == 2:
		if wanted.User, err = strconv.ParseInt(words[1], 10, 64); err != nil || wanted.User < 1 {
			return answer(message.RefundUsage, "")
		}
	default:
		return answer(message.RefundUnknown, wanted.Charge)
	}
	if err := s.askRefund(ctx, wanted); err != nil {
		return err
	}
	s.kit.log().Info("an operator has asked for a refund", "bot", s.kit.options.Bot, "operator", turn.User.ID, "user", wanted.User, "charge", wanted.Charge)
	return answer(message.RefundBegun, wanted.Charge)
}
