package message

import (
	"strconv"
	"time"
)

// nearby is how far ahead a time is told as a distance. What is further away is told by date and time of day.
const nearby = 12 * time.Hour

// when tells a time that lies ahead, up to the minute. It is rounded up, so that whoever comes back then is not too early.
func (w *writer) when(at time.Time) string {
	left := at.Sub(w.now)
	switch {
	case left < time.Minute:
		return w.phrase("time.soon", nil)
	case left < nearby:
		return w.phrase("time.in", values{"Duration": w.duration(left)})
	}
	at = at.Add(time.Minute - 1).Truncate(time.Minute).In(w.zone)
	v := values{
		"Day": strconv.Itoa(at.Day()), "Month": w.phrase("month."+strconv.Itoa(int(at.Month())), nil), "Clock": at.Format("15:04"),
	}
	if at.Year() == w.now.In(w.zone).Year() {
		return w.phrase("time.at", v)
	}
	v["Year"] = strconv.Itoa(at.Year())
	return w.phrase("time.at_in_year", v)
}

// duration tells hours and minutes, without the part that is zero.
func (w *writer) duration(length time.Duration) string {
	minutes := int((length + time.Minute - 1) / time.Minute)
	tell := func(name string, n int) string { return w.phraseOf(name, n, values{"Count": w.count(n)}) }
	hours, minutes := minutes/60, minutes%60
	switch {
	case hours == 0:
		return tell("time.minutes", minutes)
	case minutes == 0:
		return tell("time.hours", hours)
	}
	return tell("time.hours", hours) + " " + tell("time.minutes", minutes)
}
