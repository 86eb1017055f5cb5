package fakeapi

// Polls is how many getUpdates of a bot wait.
func Polls(b *Bot) int {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.polls
}
