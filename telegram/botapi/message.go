package botapi

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

// What Telegram takes, in UTF-16 units where it is a text, and in bytes where it is data.
const (
	MaxText         = 4096
	MaxCaption      = 1024
	MaxCallbackText = 200
	MaxCallbackData = 64
)

// Button is a button under a message. It has one of Data, URL and Pay.
type Button struct {
	Text  string
	Data  string // comes back in a callback query; at most MaxCallbackData bytes
	URL   string
	Pay   bool   // pays the invoice that it is under; the first button of all
	Style string // danger, success or primary; empty: the app's own
}

// Keyboard is rows of buttons.
type Keyboard [][]Button

// Message is a text to send. One that is too long becomes several, split between lines or words: the first is the reply, the
// last has the keyboard.
type Message struct {
	Chat     Chat
	Thread   int // of a forum; 0: none
	Text     string
	HTML     bool // Text is Telegram's HTML; otherwise it is shown as it is
	ReplyTo  int  // 0: to nothing. A message that is gone is no hindrance
	Keyboard Keyboard
	Silent   bool
	// AtLeastOnce sends it again where the answer was lost, so that it may be there twice. Otherwise that is ErrUncertain.
	AtLeastOnce bool
}

// Photo is a picture to send, by its address or as it is. What of the caption is too long follows as messages.
type Photo struct {
	Chat        Chat
	Thread      int
	Caption     string
	HTML        bool
	URL         string
	Data        []byte // instead of URL; not to be changed afterwards
	ReplyTo     int
	Keyboard    Keyboard
	AtLeastOnce bool
}

// Edit is what a message becomes. Without a keyboard it loses the one that it has. A text that is too long is cut.
type Edit struct {
	Chat     Chat
	Message  int
	Text     string
	HTML     bool
	Keyboard Keyboard
}

// Send sends a message, and returns its id; of several, the last one's. ErrBlocked, ErrRejected, and what every call may return.
func (c *Client) Send(ctx context.Context, m Message) (message int, err error) {
	keyboard, err := markup("sendMessage", m.Keyboard)
	if err != nil {
		return 0, err
	}
	parts := Split(m.Text, MaxText, m.HTML)
	if len(parts) == 0 {
		return 0, rejected("sendMessage", "there is no text")
	}
	for i, text := range parts {
		params := bot.SendMessageParams{
			MessageThreadID: m.Thread, Text: text, ParseMode: mode(m.HTML), DisableNotification: m.Silent || i > 0,
		}
		if i == 0 {
			params.ReplyParameters = replyTo(m.ReplyTo)
		}
		if i == len(parts)-1 {
			params.ReplyMarkup = keyboard
		}
		err := c.do(ctx, call{method: "sendMessage", chat: m.Chat, paced: true, repeat: m.AtLeastOnce}, func(ctx context.Context, chat Chat) error {
			params := params // a failed try may still be reading the one before
			params.ChatID = chat
			sent, err := c.bot.SendMessage(ctx, &params)
			if err == nil {
				message = sent.ID
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return message, nil
}

// SendPhoto sends a picture, and returns its message's id. Errors as Send's.
func (c *Client) SendPhoto(ctx context.Context, p Photo) (message int, err error) {
	keyboard, err := markup("sendPhoto", p.Keyboard)
	if err != nil {
		return 0, err
	}
	if (p.URL == "") == (len(p.Data) == 0) {
		return 0, rejected("sendPhoto", "a photo has either an address or data")
	}
	caption, rest := Cut(p.Caption, MaxCaption, p.HTML)
	params := bot.SendPhotoParams{
		MessageThreadID: p.Thread, Caption: caption, ParseMode: mode(p.HTML && caption != ""), ReplyParameters: replyTo(p.ReplyTo), ReplyMarkup: keyboard,
	}
	err = c.do(ctx, call{method: "sendPhoto", chat: p.Chat, paced: true, repeat: p.AtLeastOnce}, func(ctx context.Context, chat Chat) error {
		params := params
		params.ChatID = chat
		if params.Photo = (&models.InputFileString{Data: p.URL}); p.URL == "" {
			params.Photo = &models.InputFileUpload{Filename: "picture", Data: bytes.NewReader(p.Data)}
		}
		sent, err := c.bot.SendPhoto(ctx, &params)
		if err == nil {
			message = sent.ID
		}
		return err
	})
	if err != nil || rest == "" {
		return message, err
	}
	_, err = c.Send(ctx, Message{Chat: p.Chat, Thread: p.Thread, Text: rest, HTML: p.HTML, ReplyTo: message, Silent: true, AtLeastOnce: p.AtLeastOnce})
	return message, err
}

// Edit changes a message. That it is so already is no error. ErrNoMessage, ErrBlocked, ErrRejected.
func (c *Client) Edit(ctx context.Context, e Edit) error {
	keyboard, err := markup("editMessageText", e.Keyboard)
	if err != nil {
		return err
	}
	params := bot.EditMessageTextParams{MessageID: e.Message, Text: Shorten(e.Text, MaxText, e.HTML), ParseMode: mode(e.HTML), ReplyMarkup: keyboard}
	if params.Text == "" {
		return rejected("editMessageText", "there is no text")
	}
	err = c.do(ctx, call{method: "editMessageText", chat: e.Chat, paced: true, repeat: true}, func(ctx context.Context, chat Chat) error {
		params := params
		params.ChatID = chat
		_, err := c.bot.EditMessageText(ctx, &params)
		return err
	})
	if describes(err, "message is not modified") {
		return nil
	}
	return err
}

// Delete removes a message. That there is none is no error. ErrNoMessage says that it is too old to be deleted.
func (c *Client) Delete(ctx context.Context, chat Chat, message int) error {
	err := c.do(ctx, call{method: "deleteMessage", chat: chat, paced: true, repeat: true}, func(ctx context.Context, chat Chat) error {
		_, err := c.bot.DeleteMessage(ctx, &bot.DeleteMessageParams{ChatID: chat, MessageID: message})
		return err
	})
	if describes(err, "message to delete not found") {
		return nil
	}
	return err
}

// ChatAction shows for about five seconds that the bot does something: typing, upload_photo and so on. It is worth nothing
// later, so it is dropped where it would have to wait.
func (c *Client) ChatAction(ctx context.Context, chat Chat, thread int, action string) error {
	if !c.limiter.idle(chat) {
		return nil
	}
	err := c.once(ctx, call{method: "sendChatAction", chat: chat}, func(ctx context.Context, chat Chat) error {
		_, err := c.bot.SendChatAction(ctx, &bot.SendChatActionParams{ChatID: chat, MessageThreadID: thread, Action: models.ChatAction(action)})
		return err
	})
	var asked *RetryAfter
	var moved *movedError
	switch {
	case errors.As(err, &asked):
		c.limiter.pause(chat, asked.Wait)
		return nil
	case errors.As(err, &moved):
		return nil // the next message follows
	}
	return err
}

// AnswerCallback ends the waiting of a button that was tapped, with a text or without one. A query that is too old to be
// answered is no error: nobody waits for it any more.
func (c *Client) AnswerCallback(ctx context.Context, id, text string, alert bool) error {
	params := &bot.AnswerCallbackQueryParams{CallbackQueryID: id, Text: Shorten(text, MaxCallbackText, false), ShowAlert: alert}
	err := c.do(ctx, call{method: "answerCallbackQuery", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.AnswerCallbackQuery(ctx, params)
		return err
	})
	if describes(err, tooOld...) {
		return nil
	}
	return err
}

// tooOld are the words about a query that nobody waits for any more, or that has its answer.
var tooOld = []string{"query is too old", "query id is invalid"}

func mode(html bool) models.ParseMode {
	if html {
		return models.ParseModeHTML
	}
	return ""
}

func replyTo(message int) *models.ReplyParameters {
	if message == 0 {
		return nil
	}
	return &models.ReplyParameters{MessageID: message, AllowSendingWithoutReply: true}
}

func markup(method string, keyboard Keyboard) (models.ReplyMarkup, error) {
	if len(keyboard) == 0 {
		return nil, nil
	}
	made := models.InlineKeyboardMarkup{}
	for _, row := range keyboard {
		var buttons []models.InlineKeyboardButton
		for _, b := range row {
			if len(b.Data) > MaxCallbackData {
				return nil, rejected(method, "the data of the button %q are %d bytes, at most %d are taken", b.Text, len(b.Data), MaxCallbackData)
			}
			buttons = append(buttons, models.InlineKeyboardButton{Text: b.Text, CallbackData: b.Data, URL: b.URL, Pay: b.Pay, Style: b.Style})
		}
		made.InlineKeyboard = append(made.InlineKeyboard, buttons)
	}
	return made, nil
}

// describes reports whether Telegram has rejected a call with one of these words.
func describes(err error, parts ...string) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	for _, part := range parts {
		if strings.Contains(strings.ToLower(failed.Description), part) {
			return true
		}
	}
	return false
}
