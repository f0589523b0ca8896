package playbooks

import (
	"fmt"
	"strings"

	"github.com/nyaruka/phonenumbers/v2"
)

// A market is a country with real users: their share in percent, and the price of a message to it in
// millionths of a euro.
type market struct {
	region string
	share  int
	price  int
}

// markets are the countries with real users.
func markets() []market {
	return []market{
		{"CN", 55, 30_000}, {"DE", 10, 75_000}, {"FR", 8, 70_000}, {"GB", 8, 40_000}, {"US", 6, 8_000},
		{"PL", 5, 30_000}, {"ES", 4, 60_000}, {"SE", 2, 55_000}, {"NZ", 1, 90_000}, {"AZ", 1, 350_000},
	}
}

// dear are countries without users whose messages cost most.
func dear() []string {
	return []string{"LV", "TN", "SO", "MG", "BJ", "BI", "LY", "DZ", "UZ", "TJ", "KM", "GA", "LK", "BD", "PK"}
}

// price is what a message to a number of that country costs.
func price(region string) int {
	for _, m := range markets() {
		if m.region == region {
			return m.price
		}
	}
	return 300_000
}

// country draws the country of a real user.
func (d *Day) country() string {
	draw := d.random.IntN(100)
	for _, m := range markets() {
		if draw -= m.share; draw < 0 {
			return m.region
		}
	}
	return "CN"
}

// stem returns the example of a mobile number of the country, as the library has it.
func (d *Day) stem(region string) string {
	if d.stems[region] == "" {
		d.stems[region] = phonenumbers.Format(phonenumbers.GetExampleNumberForTypeInRegion(region, phonenumbers.MOBILE), phonenumbers.E164)
	}
	return d.stems[region]
}

// number draws a mobile number of the country.
func (d *Day) number(region string) string { return d.inRange(region, d.random.IntN(100)) }

// inRange draws a number of one of a country's ranges, each of which has 10,000 numbers.
func (d *Day) inRange(region string, n int) string {
	return d.numbered(region, n, d.random.IntN(10_000))
}

// numbered is a number by its range and its place there. Ranges that the country does not have are
// counted on to the next that it has.
func (d *Day) numbered(region string, n, place int) string {
	s := d.stem(region)
	head := s[:len(s)-6]
	for i := range 100 {
		number := fmt.Sprintf("%s%02d%04d", head, (n+i)%100, place)
		if p, err := phonenumbers.Parse(number, "ZZ"); err == nil && phonenumbers.IsValidNumber(p) {
			return number
		}
	}
	return s
}

// address draws a client address.
func (d *Day) address() string {
	return fmt.Sprintf("%d.%d.%d.%d", 11+d.random.IntN(80), d.random.IntN(256), d.random.IntN(256), 1+d.random.IntN(250))
}

// spelled is a number in one of the spellings that people write.
func (d *Day) spelled(number string) string {
	switch d.random.IntN(4) {
	case 0:
		return number[:3] + " " + number[3:6] + " " + number[6:]
	case 1:
		return number[:3] + "-" + number[3:]
	case 2:
		return "00" + strings.TrimPrefix(number, "+")
	}
	return number
}
