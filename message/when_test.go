package message

import (
	"testing"
	"time"
)

func TestTimesAreDistancesWhenNearAndDatesWhenFar(t *testing.T) {
	texts := newTexts(t)
	for _, c := range []struct {
		ahead  time.Duration
		en, ru string
	}{
		{-time.Hour, "in less than a minute", "меньше чем через минуту"},
		{time.Second, "in less than a minute", "меньше чем через минуту"},
		{59 * time.Second, "in less than a minute", "меньше чем через минуту"},
		{time.Minute, "in 1 minute", "через 1 минуту"},
		{time.Minute + time.Second, "in 2 minutes", "через 2 минуты"},
		{5 * time.Minute, "in 5 minutes", "через 5 минут"},
		{11 * time.Minute, "in 11 minutes", "через 11 минут"},
		{21 * time.Minute, "in 21 minutes", "через 21 минуту"},
		{59*time.Minute + time.Second, "in 1 hour", "через 1 час"},
		{time.Hour, "in 1 hour", "через 1 час"},
		{time.Hour + time.Minute, "in 1 hour 1 minute", "через 1 час 1 минуту"},
		{3 * time.Hour, "in 3 hours", "через 3 часа"},
		{5*time.Hour + 22*time.Minute, "in 5 hours 22 minutes", "через 5 часов 22 минуты"},
		{12*time.Hour - time.Second, "in 12 hours", "через 12 часов"},
		{12 * time.Hour, "on 14 December at 00:00", "14 декабря в 00:00"},
		{reset.Sub(noon), "on 14 December at 12:12", "14 декабря в 12:12"},
		{reset.Sub(noon) + time.Second, "on 14 December at 12:13", "14 декабря в 12:13"},
		{18 * 24 * time.Hour, "on 31 December at 12:00", "31 декабря в 12:00"},
		{18*24*time.Hour + 12*time.Hour - time.Second, "on 1 January 2027 at 00:00", "1 января 2027 года в 00:00"},
		{80 * 24 * time.Hour, "on 3 March 2027 at 12:00", "3 марта 2027 года в 12:00"},
	} {
		if got := texts.writer(english(), nil, noon).when(noon.Add(c.ahead)); got != c.en {
			t.Errorf("%s ahead: %q, want %q", c.ahead, got, c.en)
		}
		if got := texts.writer(russian(), nil, noon).when(noon.Add(c.ahead)); got != c.ru {
			t.Errorf("%s ahead: %q, want %q", c.ahead, got, c.ru)
		}
	}
}

func TestTimesAreToldInTheReadersZone(t *testing.T) {
	texts := newTexts(t)
	lastDay := time.Date(2026, time.December, 31, 20, 0, 0, 0, time.UTC)
	newYear := time.Date(2027, time.January, 1, 9, 0, 0, 0, time.UTC)
	tokyo := time.FixedZone("Asia/Tokyo", 9*60*60)
	for _, c := range []struct {
		zone *time.Location
		want string
	}{
		{nil, "1 января 2027 года в 09:00"},
		{moscow, "1 января 2027 года в 12:00"},
		{tokyo, "1 января в 18:00"}, // it is 2027 there already
	} {
		if got := texts.writer(Reader{Language: "ru", Location: c.zone}, nil, lastDay).when(newYear); got != c.want {
			t.Errorf("in %v: %q, want %q", c.zone, got, c.want)
		}
	}
}

func TestEveryMonthHasItsName(t *testing.T) {
	texts := newTexts(t)
	want := []string{
		"января", "февраля", "марта", "апреля", "мая", "июня", "июля", "августа", "сентября", "октября", "ноября", "декабря",
	}
	for month := time.January; month <= time.December; month++ {
		at := time.Date(2026, month, 20, 0, 0, 0, 0, time.UTC)
		if got := texts.writer(Reader{Language: "ru"}, nil, at.AddDate(0, 0, -2)).when(at); got != "20 "+want[month-1]+" в 00:00" {
			t.Errorf("month %d: %q", month, got)
		}
		if got := texts.writer(Reader{Language: "en"}, nil, at.AddDate(0, 0, -2)).when(at); got != "on 20 "+month.String()+" at 00:00" {
			t.Errorf("month %d: %q", month, got)
		}
	}
}
