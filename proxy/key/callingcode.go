package key

import (
	"fmt"
	"strconv"
	"sync/atomic"
)

// callingCodes is the number of calling codes, which have at most three digits.
const callingCodes = 1000

// countries holds the numbering plans by calling code. A plan is compiled when the first
// number with its code is parsed, which takes about a millisecond; all plans together take
// less than a megabyte. The zero value is ready for use, also concurrently.
type countries [callingCodes]atomic.Pointer[country]

// A country holds the plans of one calling code: of one or several countries, or of a
// service.
type country struct {
	dial  string  // "+86"
	plans []*plan // the one that speaks for the code stands first; none if there is no such code
}

// forCode returns the country for a calling code.
func (all *countries) forCode(code int) *country {
	c := all[code].Load()
	if c == nil {
		c = newCountry(code)
		all[code].Store(c) // concurrent calls store equal values
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

// split splits the calling code off digits. The country is nil if they do not begin with
// one.
func (all *countries) split(digits string) (c *country, national string) {
	code := 0
	for i := 0; i < min(len(digits), 3); i++ {
		code = code*10 + int(digits[i]-'0')
		if code == 0 {
			return nil, digits // no code begins with 0
		}
		if c := all.forCode(code); len(c.plans) > 0 {
			return c, digits[i+1:]
		}
	}
	return nil, digits
}

// main returns the main plan of the calling code.
func (c *country) main() *plan { return c.plans[0] }

// plan returns the plan of a region, nil if the region has another code.
func (c *country) plan(region string) *plan {
	for _, p := range c.plans {
		if p.region == region {
			return p
		}
	}
	return nil
}

// find returns the plan and the type of a national number, "" if no plan has it.
func (c *country) find(national string) (*plan, LineType) {
	if len(c.plans) == 1 {
		return c.plans[0], c.plans[0].lineType(national)
	}
	for _, p := range c.plans {
		if p.leading {
			if p.hasLeadingDigits(national) {
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
