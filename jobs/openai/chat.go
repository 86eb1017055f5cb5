package openai

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/jobs"
)

// Message is a message of a chat.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Chat is a chat to be gone on with.
type Chat struct {
	Model     string
	Messages  []Message
	MaxTokens int64 // of the answer, as max_tokens; 0: the provider's default
	// Extra goes into the request as it is, and before what is above: temperature, max_completion_tokens and so on.
	Extra map[string]any
}

// Text is what a chat was answered.
type Text struct {
	Text  string
	Whole bool // it was not cut off at the longest answer
	// Usage is for job.Use, by the kinds above; nil: the provider did not tell.
	Usage map[string]holdfast.Amount
}

// Chat asks for the answer to a chat, once under the reservation's id. Its errors are for the handler to return:
// *engine.Release with a cause of package jobs or CauseUnusable, engine.ErrInDoubt, or the context's end. What a provider
// refuses for its content is released, so nothing is charged for it.
func (c *Client) Chat(ctx context.Context, job *jobs.Job, chat Chat) (*Text, error) {
	request := map[string]any{"model": chat.Model, "messages": chat.Messages}
	if chat.MaxTokens > 0 {
		request["max_tokens"] = chat.MaxTokens
	}
	var answer struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
				Refusal string `json:"refusal"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage json.RawMessage `json:"usage"`
	}
	if err := c.ask(ctx, job, "/chat/completions", request, chat.Extra, &answer); err != nil {
		return nil, err
	}
	if len(answer.Choices) == 0 {
		return nil, unusable("the answer has no choice")
	}
	choice := answer.Choices[0]
	switch {
	case choice.Finish == "content_filter":
		return nil, jobs.Fail(jobs.CauseContentRefused, errors.New("finish_reason content_filter"))
	case choice.Message.Refusal != "":
		return nil, jobs.Fail(jobs.CauseContentRefused, errors.New("the model refused"))
	case choice.Message.Content == "":
		return nil, unusable("the answer has no text, finish_reason %q", choice.Finish)
	case choice.Finish == "error":
		return nil, unusable("the answer broke off")
	}
	return &Text{Text: choice.Message.Content, Whole: choice.Finish != "length", Usage: usageOf(answer.Usage)}, nil
}
