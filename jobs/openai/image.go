package openai

import (
	"context"
	"encoding/json"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/jobs"
)

// Image is a picture to be made.
type Image struct {
	Model  string
	Prompt string
	Size   string // such as 1024x1024; empty: the provider's default
	Count  int    // 0: 1
	// Extra goes into the request as it is, and before what is above: response_format, quality and so on.
	Extra map[string]any
}

// Picture is a picture that was made: where it is, or itself.
type Picture struct {
	URL     string
	Data    []byte
	Revised string // the prompt as the model has changed it
}

// Pictures is what was made.
type Pictures struct {
	Pictures []Picture // at least one
	Usage    map[string]holdfast.Amount
}

// Image asks for pictures, once under the reservation's id. Errors are as those of Chat.
func (c *Client) Image(ctx context.Context, job *jobs.Job, image Image) (*Pictures, error) {
	request := map[string]any{"model": image.Model, "prompt": image.Prompt, "n": max(image.Count, 1)}
	if image.Size != "" {
		request["size"] = image.Size
	}
	var answer struct {
		Data []struct {
			URL     string `json:"url"`
			Data    []byte `json:"b64_json"`
			Revised string `json:"revised_prompt"`
		} `json:"data"`
		Usage json.RawMessage `json:"usage"`
	}
	if err := c.ask(ctx, job, "/images/generations", request, image.Extra, &answer); err != nil {
		return nil, err
	}
	made := &Pictures{Usage: usageOf(answer.Usage)}
	for _, one := range answer.Data {
		if one.URL != "" || len(one.Data) > 0 {
			made.Pictures = append(made.Pictures, Picture{URL: one.URL, Data: one.Data, Revised: one.Revised})
		}
	}
	if len(made.Pictures) == 0 {
		return nil, unusable("the answer has no picture")
	}
	return made, nil
}
