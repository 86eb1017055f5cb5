//go:build !linux

package sqlite

import "github.com/holdfast-dev/holdfast/store/storetest"

// systemTroubles need what is known to work on Linux only.
func systemTroubles(*DB) []storetest.Trouble { return nil }
