package telegram

import "time"

// SetAfter puts another clock behind the pauses of status messages and of what is looked after.
func (k *Kit) SetAfter(after func(time.Duration) <-chan time.Time) { k.after = after }
