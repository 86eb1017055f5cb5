package fakeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of texts, in UTF-16 units after tags are gone.
const (
	maxText    = 4096
	maxCaption = 1024
)

// actionLasts is how long people are shown that the bot is doing something.
const actionLasts = 5 * time.Second

func (b *Bot) getMe(parameters) (any, *refusal) {
	return map[string]any{
		"id": b.profile.ID, "is_bot": true, "first_name": b.profile.FirstName, "username": b.profile.Username,
		"can_join_groups": true, "can_read_all_group_messages": true, "supports_inline_queries": false,
	}, nil
}

// writable is the chat that a call is about, where the bot may write there.
func (b *Bot) writable(p parameters) (*room, *refusal) {
	if !p.has("chat_id") || p.text("chat_id") == "" {
		return nil, bad("chat_id is empty")
	}
	r := b.rooms[p.number("chat_id")]
	return r, r.refuses()
}

// written reads a text and its tags.
func written(p parameters, name string, longest int) (text string, entities []Entity, problem *refusal) {
	text = p.text(name)
	if !utf8.ValidString(text) {
		return "", nil, bad("strings must be encoded in UTF-8")
	}
	switch strings.ToLower(p.text("parse_mode")) {
	case "html":
		if text, entities, problem = parseHTML(text); problem != nil {
			return "", nil, problem
		}
	case "", "markdown", "markdownv2":
		key := "entities"
		if name == "caption" {
			key = "caption_entities"
		}
		if problem := p.decode(key, &entities); problem != nil {
			return "", nil, problem
		}
	default:
		return "", nil, bad("unsupported parse_mode")
	}
	trimmed := strings.TrimRight(text, " \n\t")
	if len(entities) == 0 {
		trimmed = strings.TrimLeft(trimmed, " \n\t")
	}
	if utf16Length(trimmed) > longest {
		return "", nil, bad("%s is too long", map[string]string{"text": "message", "caption": "message caption"}[name])
	}
	return trimmed, entities, nil
}

// keyboard reads reply_markup. Keyboards in place of the phone's own are taken and not shown.
func keyboard(p parameters) (rows [][]Button, raw string, problem *refusal) {
	var markup struct {
		InlineKeyboard [][]json.RawMessage `json:"inline_keyboard"`
	}
	if problem := p.decode("reply_markup", &markup); problem != nil {
		return nil, "", problem
	}
	for _, given := range markup.InlineKeyboard {
		var row []Button
		for _, content := range given {
			button, problem := readButton(content)
			if problem != nil {
				return nil, "", problem
			}
			row = append(row, button)
		}
		if len(row) > 0 {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, "", nil
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, []byte(p.text("reply_markup")))
	return rows, compact.String(), nil
}

func readButton(content json.RawMessage) (Button, *refusal) {
	var given struct {
		Text, Style, URL string
		Data             *string `json:"callback_data"`
		Pay              bool
		Disabled         json.RawMessage
		WebApp           *struct{ URL string } `json:"web_app"`
		CopyText         json.RawMessage       `json:"copy_text"`
		Switch           *string               `json:"switch_inline_query"`
		SwitchHere       *string               `json:"switch_inline_query_current_chat"`
	}
	if err := json.Unmarshal(content, &given); err != nil {
		return Button{}, bad("can't parse inline keyboard button: %v", err)
	}
	b := Button{Text: given.Text, Style: given.Style, URL: given.URL, Pay: given.Pay, Disabled: len(given.Disabled) > 0 && string(given.Disabled) != "null" && string(given.Disabled) != "false"}
	if given.WebApp != nil {
		b.URL = given.WebApp.URL
	}
	if given.Data != nil {
		b.Data = *given.Data
	}
	switch {
	case b.Text == "":
		return b, bad("can't parse inline keyboard button: Field \"text\" must be non-empty")
	case given.Data != nil && (b.Data == "" || len(b.Data) > 64):
		return b, bad("BUTTON_DATA_INVALID")
	case b.URL != "" && !validAddress(b.URL):
		return b, bad("inline keyboard button URL '%s' is invalid: wrong HTTP URL", b.URL)
	case given.Data == nil && b.URL == "" && !b.Pay && !b.Disabled && given.CopyText == nil && given.Switch == nil && given.SwitchHere == nil:
		return b, bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
	}
	return b, nil
}

func validAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "tg" || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "")
}

// send completes a message with what all have, and posts it.
func (b *Bot) send(p parameters, m *Message) (any, *refusal) {
	r, problem := b.writable(p)
	if problem != nil {
		return nil, problem
	}
	if m.Keyboard, m.markup, problem = keyboard(p); problem != nil {
		return nil, problem
	}
	var reply struct {
		Message int  `json:"message_id"`
		Without bool `json:"allow_sending_without_reply"`
	}
	reply.Message, reply.Without = int(p.number("reply_to_message_id")), p.flag("allow_sending_without_reply")
	if problem := p.decode("reply_parameters", &reply); problem != nil {
		return nil, problem
	}
	if reply.Message != 0 && r.message(reply.Message) == nil {
		if !reply.Without {
			return nil, bad("message to be replied not found")
		}
		reply.Message = 0
	}
	m.From, m.ReplyTo, m.Thread, m.Silent = b.profile, reply.Message, int(p.number("message_thread_id")), p.flag("disable_notification")
	r.action = ""
	return r.describe(b.post(r, m), false), nil
}

func (b *Bot) sendMessage(p parameters) (any, *refusal) {
	text, entities, problem := written(p, "text", maxText)
	if problem != nil {
		return nil, problem
	}
	if text == "" {
		return nil, bad("message text is empty")
	}
	return b.send(p, &Message{Text: text, Entities: entities})
}

// fileSender is the method that sends a kind of file: photo, document, video and so on.
func fileSender(kind string) method {
	return func(b *Bot, p parameters) (any, *refusal) { return b.sendFile(p, kind) }
}

func (b *Bot) sendFile(p parameters, name string) (any, *refusal) {
	if _, problem := b.writable(p); problem != nil {
		return nil, problem
	}
	text, entities, problem := written(p, "caption", maxCaption)
	if problem != nil {
		return nil, problem
	}
	file, problem := b.file(p, name)
	if problem != nil {
		return nil, problem
	}
	m := &Message{Text: text, Entities: entities, Photo: file}
	if name != "photo" {
		m.Photo, m.File, m.FileKind = "", file, name
	}
	return b.send(p, m)
}

// file is an upload, which gets an id; an address, which stays as it is; or an id that the bot knows.
func (b *Bot) file(p parameters, name string) (string, *refusal) {
	given := p.text(name)
	if attached, ok := strings.CutPrefix(given, "attach://"); ok {
		name, given = attached, ""
	}
	uploaded, sent := p.files[name]
	_, known := b.files[given]
	switch {
	case sent && len(uploaded.content) > 0:
		return b.keep(uploaded), nil
	case sent || given == "":
		return "", bad("there is no %s in the request", name)
	case known || (strings.HasPrefix(given, "http://") || strings.HasPrefix(given, "https://")) && validAddress(given):
		return given, nil
	}
	return "", bad("wrong file identifier/HTTP URL specified")
}

func (b *Bot) keep(u upload) (id string) {
	id = fmt.Sprintf("file%d", b.server.next())
	b.files[id] = u
	return id
}

func (b *Bot) sendMessageDraft(p parameters) (any, *refusal) {
	r, problem := b.writable(p)
	if problem != nil {
		return nil, problem
	}
	if r.chat.Type != "private" || p.number("draft_id") == 0 {
		return nil, bad("DRAFT_ID_INVALID")
	}
	text, _, problem := written(p, "text", maxText)
	if problem != nil {
		return nil, problem
	}
	r.drafts[p.number("draft_id")] = text
	return true, nil
}

// editable is the message of the bot that a call wants to change.
func (b *Bot) editable(p parameters) (*room, *Message, *refusal) {
	r, problem := b.writable(p)
	if problem != nil {
		return nil, nil, problem
	}
	m := r.message(int(p.number("message_id")))
	switch {
	case m == nil:
		return nil, nil, bad("message to edit not found")
	case m.From.ID != b.profile.ID:
		return nil, nil, bad("message can't be edited")
	}
	return r, m, nil
}

// edit replaces text and keyboard, both of which are removed where they are left out.
func (b *Bot) edit(r *room, m *Message, p parameters, text string, entities []Entity) (any, *refusal) {
	rows, raw, problem := keyboard(p)
	if problem != nil {
		return nil, problem
	}
	if text == m.Text && raw == m.markup && slices.Equal(entities, m.Entities) {
		return nil, bad("message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message")
	}
	m.Text, m.Entities, m.Keyboard, m.markup = text, entities, rows, raw
	m.Edits, m.EditedAt = m.Edits+1, b.server.clock.now()
	return r.describe(m, false), nil
}

func (b *Bot) editMessageText(p parameters) (any, *refusal) {
	r, m, problem := b.editable(p)
	if problem != nil {
		return nil, problem
	}
	if m.Photo != "" || m.File != "" || m.Invoice != nil {
		return nil, bad("there is no text in the message to edit")
	}
	text, entities, problem := written(p, "text", maxText)
	if problem != nil {
		return nil, problem
	}
	if text == "" {
		return nil, bad("message text is empty")
	}
	return b.edit(r, m, p, text, entities)
}

func (b *Bot) editMessageCaption(p parameters) (any, *refusal) {
	r, m, problem := b.editable(p)
	if problem != nil {
		return nil, problem
	}
	if m.Photo == "" && m.File == "" {
		return nil, bad("there is no caption in the message to edit")
	}
	text, entities, problem := written(p, "caption", maxCaption)
	if problem != nil {
		return nil, problem
	}
	return b.edit(r, m, p, text, entities)
}

func (b *Bot) editMessageReplyMarkup(p parameters) (any, *refusal) {
	r, m, problem := b.editable(p)
	if problem != nil {
		return nil, problem
	}
	return b.edit(r, m, p, m.Text, m.Entities)
}

func (b *Bot) deleteMessage(p parameters) (any, *refusal) {
	r, problem := b.writable(p)
	if problem != nil {
		return nil, problem
	}
	id := int(p.number("message_id"))
	if r.message(id) == nil {
		return nil, bad("message to delete not found")
	}
	r.drop(id)
	return true, nil
}

func (b *Bot) sendChatAction(p parameters) (any, *refusal) {
	r, problem := b.writable(p)
	if problem != nil {
		return nil, problem
	}
	action := p.text("action")
	if !slices.Contains([]string{"typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document", "choose_sticker", "find_location", "record_video_note", "upload_video_note"}, action) {
		return nil, bad("wrong parameter action in request")
	}
	r.action, r.actionEnds = action, b.server.clock.now().Add(actionLasts)
	return true, nil
}

func (b *Bot) setMyCommands(p parameters) (any, *refusal) {
	var list []struct{ Command, Description string }
	if problem := p.decode("commands", &list); problem != nil {
		return nil, problem
	}
	if len(list) > 100 {
		return nil, bad("BOT_COMMANDS_TOO_MUCH")
	}
	for _, c := range list {
		if !validCommand(c.Command) {
			return nil, bad("BOT_COMMAND_INVALID")
		}
		if n := utf8.RuneCountInString(c.Description); n < 1 || n > 256 {
			return nil, bad("BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	b.commands[commandScope(p)] = p.text("commands")
	return true, nil
}

func validCommand(name string) bool {
	name = strings.TrimPrefix(name, "/")
	return len(name) >= 1 && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func commandScope(p parameters) string {
	scope := p.text("scope")
	if strings.Contains(scope, `"default"`) {
		scope = ""
	}
	return scope + "/" + p.text("language_code")
}

func (b *Bot) getMyCommands(p parameters) (any, *refusal) {
	if list := b.commands[commandScope(p)]; list != "" {
		return json.RawMessage(list), nil
	}
	return []any{}, nil
}

func (b *Bot) deleteMyCommands(p parameters) (any, *refusal) {
	delete(b.commands, commandScope(p))
	return true, nil
}

func (b *Bot) getChat(p parameters) (any, *refusal) {
	r := b.rooms[p.number("chat_id")]
	if r == nil {
		return nil, bad("chat not found")
	}
	return r.chat, nil
}

func (b *Bot) getChatMember(p parameters) (any, *refusal) {
	r, user := b.rooms[p.number("chat_id")], p.number("user_id")
	switch {
	case r == nil:
		return nil, bad("chat not found")
	case user == b.profile.ID && r.blocked:
		return map[string]any{"status": "kicked", "user": b.profile, "until_date": 0}, nil
	case user == b.profile.ID:
		return map[string]any{"status": "member", "user": b.profile}, nil
	case b.server.users[user] == nil:
		return nil, bad("PARTICIPANT_ID_INVALID")
	}
	return map[string]any{"status": "member", "user": b.server.users[user]}, nil
}

func (b *Bot) getFile(p parameters) (any, *refusal) {
	id := p.text("file_id")
	file, known := b.files[id]
	if !known {
		return nil, bad("wrong file_id or the file is temporarily unavailable")
	}
	return map[string]any{"file_id": id, "file_unique_id": id, "file_size": len(file.content), "file_path": "files/" + id}, nil
}

// serveFile answers /file/bot<token>/<path>.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	token, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/file/bot"), "/")
	path = strings.TrimPrefix(path, "test/")
	b := s.caller(token)
	if b == nil {
		writeJSON(w, http.StatusUnauthorized, (&refusal{Code: 401, Description: "Unauthorized"}).frame())
		return
	}
	content, known := b.File(strings.TrimPrefix(path, "files/"))
	if !known {
		writeJSON(w, http.StatusNotFound, (&refusal{Code: 404, Description: "Not Found"}).frame())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(content)
}

// File is the content of a file that was sent in one of the bot's chats, by its id.
func (b *Bot) File(id string) (content []byte, known bool) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	file, known := b.files[id]
	return file.content, known
}
