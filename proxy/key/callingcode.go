package key

import (
	"fmt"
	"strconv"
	"sync/atomic"
)

// callingCodes are how many codes of at most three digits there are.
const callingCodes = 1000

// countries are the numbering plans by calling code. A plan is compiled when the first of
// its numbers is read; all of them together take less than a megabyte. The zero value is
// ready for use, also by several goroutines.
type countries [callingCodes]atomic.Pointer[country]

// A country is what shares a calling code: a country, several, or a service without one.
type country struct {
	dial  string  // "+86"
	plans []*plan // the one that speaks for the code stands first; none if there is no such code
}

// of is the country with a calling code.
func (all *countries) of(code int) *country {
	c := all[code].Load()
	if c == nil {
		c = newCountry(code)
		all[code].Store(c) // it makes no difference who of two is first
	}
	return c
}

func newCountry(code int) *country {
	c := &country{dial: "+" + strconv.Itoa(code)}
	for _, region := range regionsOf(code) {
		p, err := newPlan(region, planLines(code, region))
		if err != nil {
			panic(fmt.Errorf("plans.txt: +%d %s: %w", code, region, err)) // tests compile all of them
		}
		c.plans = append(c.plans, p)
	}
	return c
}

// split takes the calling code off digits. It is nil if they begin with none.
func (all *countries) split(digits string) (c *country, national string) {
	code := 0
	for i := 0; i < min(len(digits), 3); i++ {
		code = code*10 + int(digits[i]-'0')
		if code == 0 {
			return nil, digits // no code begins with 0
		}
		if c := all.of(code); len(c.plans) > 0 {
			return c, digits[i+1:]
		}
	}
	return nil, digits
}

// main is the plan that speaks for the calling code.
func (c *country) main() *plan { return c.plans[0] }

// plan is that of a region, nil if it has another code.
func (c *country) plan(region string) *plan {
	for _, p := range c.plans {
		if p.region == region {
			return p
		}
	}
	return nil
}

// find is the region that has a national number and its type, "" if none has.
func (c *country) find(national string) (*plan, LineType) {
	if len(c.plans) == 1 {
		return c.plans[0], c.plans[0].lineType(national)
	}
	for _, p := range c.plans {
		if p.leading {
			if p.begins(national) {
				return p, p.lineType(national)
			}
			continue
		}
		if t := p.lineType(national); t != "" {
			return p, t
		}
	}
	return nil, ""
}
