package telegram

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// offers are what is sold for Stars: packs once, and a plan for 30 days as a subscription, which is the only one that
// Telegram has.
func (s *Shop) offers() []message.Offer {
	if s.options.Stars == nil {
		return nil
	}
	catalog := s.kit.catalog()
	features := []string{} // what the bot cannot do is not sold as if it could
	for _, feature := range s.kit.features {
		features = append(features, feature.Name)
	}
	var offers []message.Offer
	for i := range catalog.Products {
		product := &catalog.Products[i]
		for _, price := range product.Prices {
			if price.Currency != telegramstars.Currency || product.Retired || price.Amount < 1 {
				continue
			}
			offers = append(offers, message.Offer{
				Product: product, Price: price, Features: features,
				Recurring: product.Plan != "" && product.Period == holdfast.Period{Days: 30} && price.Amount <= botapi.MaxSubscriptionStars,
			})
			break
		}
	}
	return offers
}

// tag names a product in the data of a button, which is short.
func tag(product string) string {
	if len(buttonBuy+":"+product) <= maxData {
		return product
	}
	sum := sha256.Sum256([]byte(product))
	return "#" + hex.EncodeToString(sum[:12])
}

func (s *Shop) offerNamed(named string) (message.Offer, bool) {
	for _, offer := range s.offers() {
		if named != "" && (offer.Product.Name == named || tag(offer.Product.Name) == named) {
			return offer, true
		}
	}
	return message.Offer{}, false
}

// plans shows what can be bought, with a button for each, and lets a subscription be stopped. Whoever wants to top up is shown
// packs alone, where there are any.
func (s *Shop) plans(ctx context.Context, turn *Turn) error {
	if err := turn.Answer(ctx, ""); err != nil {
		s.kit.log().Debug("a tap was not answered", "error", err)
	}
	view, err := turn.View(ctx)
	if err != nil {
		return err
	}
	offers := s.offers()
	if packs := slices.DeleteFunc(s.offers(), func(o message.Offer) bool { return o.Product.Plan != "" }); turn.Argument == onlyPacks && len(packs) > 0 {
		offers = packs
	}
	var keyboard botapi.Keyboard
	for _, offer := range offers {
		text := s.texts().OfferButton(turn.Reader, s.kit.catalog(), offer)
		keyboard = append(keyboard, []botapi.Button{{Text: text, Data: Data(buttonBuy, tag(offer.Product.Name))}})
	}
	_, renews, err := s.renewing(ctx, turn, view)
	if err != nil {
		return err
	}
	if renews {
		keyboard = append(keyboard, []botapi.Button{{Text: turn.Text(message.ButtonStopRenewal, nil), Data: Data(buttonStop, "")}})
	}
	return s.say(ctx, turn, s.texts().Plans(turn.Reader, s.kit.catalog(), view, offers, s.now()), keyboard)
}

// buy sends what a person has chosen, to be paid.
func (s *Shop) buy(ctx context.Context, turn *Turn) error {
	if err := turn.Answer(ctx, ""); err != nil {
		s.kit.log().Debug("a tap was not answered", "error", err)
	}
	offer, ok := s.offerNamed(turn.Argument)
	if !ok {
		return s.say(ctx, turn, turn.Text(message.NoSuchOffer, nil), nil)
	}
	return s.show(ctx, turn, offer)
}

// An order that nobody has paid is offered again for so long, so that pressing twice makes one order, which is paid once; and
// what was sent just now is not sent again at all.
const (
	orderAgainFor = time.Hour
	sentJustNow   = 3 * time.Second
)

// offered is the note of an order that a person was offered.
type offered struct {
	Reference string          `json:"reference"`
	Link      string          `json:"link,omitempty"`
	Price     holdfast.Amount `json:"price"`
	MadeAt    time.Time       `json:"made_at"`
	SentAt    time.Time       `json:"sent_at,omitzero"`
}

const offeredPrefix = "offered:"

func offeredKey(account string, product *holdfast.Product) string {
	return offeredPrefix + account + ":" + product.Name
}

// show sends an invoice for an offer, or, for a subscription, which only links can make, a card with a button that pays.
func (s *Shop) show(ctx context.Context, turn *Turn, offer message.Offer) error {
	defer s.buying.lock(turn.Account)()
	key := offeredKey(turn.Account, offer.Product)
	order, err := s.order(ctx, turn, offer, key)
	switch {
	case errors.Is(err, telegramstars.ErrNotSold):
		return s.say(ctx, turn, turn.Text(message.NoSuchOffer, nil), nil)
	case err != nil:
		return err
	case s.now().Sub(order.SentAt) < sentJustNow:
		return nil
	}
	order.SentAt = s.now()
	title, description := s.texts().Invoice(turn.Reader, s.kit.catalog(), offer)
	invoice := botapi.Invoice{
		Title: title, Description: description, Payload: order.Reference, Stars: int64(order.Price), Subscription: offer.Recurring,
	}
	pay := botapi.Button{Text: s.texts().PayButton(turn.Reader, offer)}
	if offer.Recurring {
		if order.Link == "" {
			if order.Link, err = s.kit.options.API.InvoiceLink(ctx, invoice); err != nil {
				return err
			}
		}
		pay.URL = order.Link
		err = s.say(ctx, turn, s.texts().OfferCard(turn.Reader, s.kit.catalog(), offer), botapi.Keyboard{{pay}})
	} else {
		pay.Pay = true
		invoice.Chat, invoice.Thread, invoice.Keyboard = turn.Place.Chat, turn.Place.Thread, botapi.Keyboard{{pay}}
		_, err = s.kit.options.API.SendInvoice(ctx, invoice)
	}
	if err != nil {
		return err
	}
	return s.kit.keep(ctx, key, order)
}

// order is the person's open order of an offer, or a new one.
func (s *Shop) order(ctx context.Context, turn *Turn, offer message.Offer, key string) (offered, error) {
	known, ok, err := note[offered](ctx, s.kit, key)
	if err != nil {
		return offered{}, err
	}
	if ok && known.Price == offer.Price.Amount && s.now().Sub(known.MadeAt) < orderAgainFor {
		order, err := s.options.Stars.Book.Find(ctx, known.Reference)
		if err != nil {
			return offered{}, err
		}
		if order != nil && order.PaidAt.IsZero() && order.Recurring == offer.Recurring {
			return known, nil
		}
	}
	order, err := s.options.Stars.NewOrder(ctx, telegramstars.NewOrder{
		Account: turn.Account, Product: offer.Product.Name, Recurring: offer.Recurring,
	})
	if err != nil {
		return offered{}, err
	}
	made := offered{Reference: order.Reference, Price: order.Price, MadeAt: order.CreatedAt}
	return made, s.kit.keep(ctx, key, made)
}
