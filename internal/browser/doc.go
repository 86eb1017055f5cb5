// Package browser gives tests a real browser.
//
//	New(t)           ─► a headless Chromium of the test's own: a fresh profile, one empty page, a chromedp context
//	Watch(ctx, t)    ─► what its page asks for and what goes wrong in it, from then on
//	Until(ctx, t, …) ─► waits for a condition in its page
//
//	where the browser comes from, the first that is there
//	1  CHROMIUM                      the program that somebody has chosen; no other is taken instead
//	2  programs on this machine      chromium, chromium-browser, google-chrome in PATH; the usual places
//	3  Debian's package chromium     installed when root
//
// Tests of pages call it: of /docs, and of whatever else is shown to people. With none of the three a test fails and says
// what to install: a test that silently did not run would be worse. With -short, which promises to need nothing, it skips.
//
// The browser and its profile are gone when the test has ended; on Linux the browser also ends with a test binary that is
// killed.
//
// What it never does: show a window, use the profile of whoever runs the tests, ask for updates, or run in the product.
package browser
