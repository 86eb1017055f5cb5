package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast"
)

const (
	maxDays   = 366 // a leap year
	maxMonths = 12
)

func (c *compiler) product(m member) {
	fields := c.fields(m.value, productLevel)
	product := holdfast.Product{Name: m.name, Names: c.names(fields["names"])}
	if m.kind == mapping {
		c.sells(&product, fields, m)
		product.Prices = c.money(fields["prices"], m)
	}
	if v := fields["retired"]; v.given() {
		product.Retired, _ = c.truth(v)
	}
	c.catalog.Products = append(c.catalog.Products, product)
}

// sells reads what is bought: a plan for a period, or a grant.
func (c *compiler) sells(product *holdfast.Product, fields map[string]value, m member) {
	plan, period, grant := fields["plan"], fields["period"], fields["grant"]
	switch {
	case !plan.given() && !grant.given() && !period.given():
		c.add(m.key.at, m.path, "sells nothing", "add plan and period, or grant: {unit: credit, amount: 100}")
	case plan.given() && grant.given():
		c.add(grant.at, grant.path, "a product sells a plan or a grant, not both", "remove one of the two")
	case grant.given() && period.given():
		c.add(period.at, period.path, "a period belongs to a plan", "remove it; a grant that ends has for: 30d")
	case !grant.given():
		c.required(plan, m, "plan", "add plan, the name of a plan")
		c.required(period, m, "period", "add period, such as 30d or 1 month")
	}
	if plan.given() {
		product.Plan = c.reference(plan, "plan", c.plans)
		if sold, found := c.catalog.Plan(product.Plan); found && sold.Default {
			c.add(plan.at, plan.path, "everybody has the default plan without paying", "sell another plan")
		}
	}
	if period.given() {
		product.Period = c.period(period)
	}
	if grant.given() {
		product.Grant = c.productGrant(grant)
	}
}

func (c *compiler) productGrant(v value) *holdfast.ProductGrant {
	grant := &holdfast.ProductGrant{}
	fields := c.fields(v, grantLevel)
	if v.kind != mapping {
		return grant
	}
	owner := member{key: v.node, value: v}
	grant.Unit = c.unitOf(fields["unit"], owner)
	grant.Amount, _ = c.amountOf(fields["amount"], owner, "amount", 1)
	if length := fields["for"]; length.given() {
		grant.For = c.period(length)
	}
	return grant
}

var currency = regexp.MustCompile(`^[A-Z]{3}$`)

// money reads what a product costs in every currency in which it is sold.
func (c *compiler) money(v value, product member) []holdfast.Money {
	const example = "[{currency: XTR, amount: 250}]"
	if !c.required(v, product, "prices", "add prices, such as "+example) {
		return nil
	}
	if v.kind == list && len(v.items) == 0 {
		c.add(v.at, v.path, "empty", "write at least one price, such as "+example)
	}
	var prices []holdfast.Money
	used := map[string]bool{}
	for _, item := range c.items(v, example) {
		fields := c.fields(item.value, moneyLevel)
		if item.kind != mapping {
			continue
		}
		var price holdfast.Money
		if code := fields["currency"]; c.required(code, item, "currency", "add currency, such as XTR") {
			price.Currency = c.currency(code)
			if price.Currency != "" && used[price.Currency] {
				c.add(code.at, code.path, "another price is in "+price.Currency+" already", "keep one price per currency")
			}
			used[price.Currency] = true
		}
		price.Amount, _ = c.amountOf(fields["amount"], item, "amount", 1)
		prices = append(prices, price)
	}
	return prices
}

func (c *compiler) currency(v value) string {
	if v.kind == text && currency.MatchString(v.text) {
		return v.text
	}
	suggestion := "write its three uppercase letters, such as USD or XTR"
	if likely := strings.ToUpper(strings.TrimSpace(v.text)); v.kind == text && currency.MatchString(likely) {
		suggestion = "write " + likely
	}
	c.add(v.at, v.path, "not a currency", suggestion)
	return ""
}

// period reads 30d, 1 month, 3 months or 1 year. It is zero where it has reported why.
func (c *compiler) period(v value) holdfast.Period {
	const example = "write days, months or a year, such as 30d, 1 month or 1 year"
	if v.kind != text && v.kind != number {
		c.add(v.at, v.path, "expected a period, found "+v.kind.String(), example)
		return holdfast.Period{}
	}
	period, likely := meantPeriod(v.text)
	proper := v.kind == text && likely && (v.text == shownPeriod(period) || v.text == strconv.Itoa(period.Months)+" months" && period.Months > 1)
	switch {
	case likely && (period.Days > maxDays || period.Months > maxMonths):
		most := holdfast.Period{Days: maxDays}
		if period.Months > 0 {
			most = holdfast.Period{Months: maxMonths}
		}
		c.add(v.at, v.path, "too long", "write at most "+shownPeriod(most))
	case likely && period == holdfast.Period{}:
		c.add(v.at, v.path, "too short", "write at least 1d")
	case proper:
		return period
	case v.kind == number:
		suggestion := example
		if likely {
			suggestion = "write " + shownPeriod(period)
		}
		c.add(v.at, v.path, "a number without a unit of time", suggestion)
	case likely:
		c.add(v.at, v.path, "not a period", "write "+shownPeriod(period))
	default:
		c.add(v.at, v.path, "not a period", example)
	}
	return holdfast.Period{}
}

// shownPeriod writes a period the way the file does.
func shownPeriod(period holdfast.Period) string {
	var parts []string
	if period.Days > 0 {
		parts = append(parts, fmt.Sprintf("%dd", period.Days))
	}
	switch {
	case period.Months == 1:
		parts = append(parts, "1 month")
	case period.Months == maxMonths:
		parts = append(parts, "1 year")
	case period.Months > 0:
		parts = append(parts, fmt.Sprintf("%d months", period.Months))
	}
	return strings.Join(parts, " ")
}

var (
	countOfWord = regexp.MustCompile(`^([0-9]{0,4})-?([a-z]*)$`)
	periodWords = []struct {
		words  string
		length holdfast.Period
	}{
		{" d day days daily", holdfast.Period{Days: 1}},
		{"w wk week weeks weekly", holdfast.Period{Days: 7}},
		{"m mo mon month months monthly", holdfast.Period{Months: 1}},
		{"y yr year years yearly annual annually", holdfast.Period{Months: maxMonths}},
	}
)

// meantPeriod is the period that was most likely meant, also where it is written otherwise: 30, 30 days, 720h, monthly.
func meantPeriod(written string) (holdfast.Period, bool) {
	written = strings.ToLower(strings.Join(strings.Fields(written), ""))
	if length, ok := parseDuration(written, true); ok && length > 0 && length%day == 0 {
		return holdfast.Period{Days: int(length / day)}, true
	}
	parts := countOfWord.FindStringSubmatch(written)
	if parts == nil || written == "" {
		return holdfast.Period{}, false
	}
	count := 1
	if parts[1] != "" {
		count, _ = strconv.Atoi(parts[1]) // at most four digits
	}
	for _, known := range periodWords {
		if slices.Contains(strings.Split(known.words, " "), parts[2]) {
			return holdfast.Period{Days: count * known.length.Days, Months: count * known.length.Months}, true
		}
	}
	return holdfast.Period{}, false
}
