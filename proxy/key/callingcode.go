package key

import (
	"strconv"
	"sync/atomic"

	"github.com/nyaruka/phonenumbers/v2/metadata"
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
	plans []*plan // the main one of the code first
	// none is true if the code is not assigned; odd is true if the library has a plan that
	// newPlan does not support.
	none, odd bool
}

// of returns the country for a calling code.
func (all *countries) of(code int) *country {
	c := all[code].Load()
	if c == nil {
		c = newCountry(code)
		all[code].Store(c) // concurrent calls store equal values
	}
	return c
}

func newCountry(code int) *country {
	c := &country{dial: "+" + strconv.Itoa(code)}
	regions := metadata.CountryCodeToRegion()[code]
	c.none = len(regions) == 0
	for _, r := range regions {
		m, known := metadata.RegionMetadata(r)
		if r == nonGeographic {
			m, known = metadata.NonGeoMetadata(code)
		}
		if !known {
			c.odd = true
			break
		}
		p, err := newPlan(m)
		if err != nil {
			c.odd = true
			break
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
		if c := all.of(code); !c.none {
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
