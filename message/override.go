package message

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nicksnyder/go-i18n/v2/i18n"
)

// blank is a placeholder of a sentence.
var blank = regexp.MustCompile(`\{\{\s*\.(\w+)\s*\}\}`)

// override reads an operator's own texts of a language, where there are any: a file that has the same name and form as
// ours, with the texts that it says in other words. A text that we do not know, a blank that ours has not, and a missing
// plural form are errors: they would be seen by a person.
func override(bundle *i18n.Bundle, own fs.FS, file string, embedded []*i18n.Message) error {
	content, err := fs.ReadFile(own, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read your texts: %w", err)
	}
	apart := i18n.NewBundle(languages[0])
	given, err := apart.ParseMessageFileBytes(content, file)
	if err != nil {
		return fmt.Errorf("parse your %s: %w", file, err)
	}
	ours := map[string]*i18n.Message{}
	for _, m := range embedded {
		ours[m.ID] = m
	}
	var wrong []error
	for _, m := range given.Messages {
		wrong = append(wrong, compare(file, m, ours[m.ID]))
	}
	if err := errors.Join(append(wrong, checkTemplates(given.Messages))...); err != nil {
		return err
	}
	_, err = bundle.ParseMessageFileBytes(content, file)
	return err
}

func compare(file string, theirs, ours *i18n.Message) error {
	if ours == nil {
		return fmt.Errorf("your %s: %s is no text of this version: remove it", file, theirs.ID)
	}
	want, have := forms(ours), forms(theirs)
	if !slices.Equal(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))) {
		return fmt.Errorf("your %s: %s needs the forms %s", file, theirs.ID, strings.Join(slices.Sorted(maps.Keys(want)), ", "))
	}
	known := map[string]bool{}
	for _, form := range slices.Sorted(maps.Keys(want)) {
		for _, name := range blank.FindAllStringSubmatch(want[form], -1) {
			known[name[1]] = true
		}
	}
	for _, form := range slices.Sorted(maps.Keys(have)) {
		for _, name := range blank.FindAllStringSubmatch(have[form], -1) {
			if !known[name[1]] {
				use := "leave it out"
				if len(known) > 0 {
					use = "use " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
				}
				return fmt.Errorf("your %s: %s has nothing to put at {{.%s}}: %s", file, theirs.ID, name[1], use)
			}
		}
	}
	return nil
}

// forms are the plural forms of a text that are written.
func forms(m *i18n.Message) map[string]string {
	all := map[string]string{"zero": m.Zero, "one": m.One, "two": m.Two, "few": m.Few, "many": m.Many, "other": m.Other}
	maps.DeleteFunc(all, func(_, text string) bool { return text == "" })
	return all
}
