"""Words of the ESCI-like benchmark: categories, products, brands, modifiers and places (paper, appendix B.1).

No ambiguous word and no word with two spellings stands here (see :mod:`regionfed_flwr.data.esci.semantics`), and
every word has one entity type, so that the text made of these words alone means the same in every region.
"""

from __future__ import annotations


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


# category: (what a user may call it, products, brands)
_SHELVES: dict[str, tuple[str, str, str]] = {
    "Electronics": (
        "electronics",
        "laptop, phone, headphones, television, router, webcam, usb charger, hdmi cable, speaker, smartwatch",
        "sony, samsung, bose, lenovo, panasonic",
    ),
    "Gaming": (
        "gaming, video games",
        "console, controller, joystick, gamepad, headset, mousepad, graphics card, racing wheel, mechanical keyboard",
        "nintendo, razer, sega, logitech, atari",
    ),
    "Movies": (
        "movies",
        "dvd, bluray, thriller, documentary, comedy, trilogy, film poster, projector screen, popcorn maker",
        "pixar, disney, paramount, criterion",
    ),
    "Music": (
        "music",
        "guitar, violin, ukulele, drum, vinyl record, keyboard pedal, microphone, amplifier, harmonica, metronome",
        "yamaha, fender, gibson, roland",
    ),
    "Books": (
        "books",
        "novel, cookbook, dictionary, atlas, biography, textbook, poetry, audiobook, fantasy series",
        "pearson, scholastic, bloomsbury, hachette",
    ),
    "Office": (
        "office supplies",
        "printer, stapler, notebook, envelope, whiteboard, ink cartridge, paper shredder, binder, calculator, pen",
        "brother, canon, sharpie, moleskine, epson",
    ),
    "Fashion": (
        "fashion",
        "handbag, scarf, sunglasses, belt, necklace, bracelet, earrings, purse, ankle heels",
        "gucci, prada, zara, chanel, versace",
    ),
    "Apparel": (
        "apparel, clothing",
        "shirt, jeans, jacket, dress, hoodie, socks, sweater, raincoat, skirt, blazer",
        "nike, levis, uniqlo, adidas, hanes",
    ),
    "Beauty": (
        "beauty, cosmetics",
        "lipstick, mascara, shampoo, perfume, face cream, nail polish, eyeliner, hair dryer, concealer",
        "loreal, maybelline, revlon, nivea, clinique",
    ),
    "Health": (
        "health, wellness",
        "vitamins, thermometer, bandage, supplements, toothbrush, heating pad, pill box, sunscreen, probiotics",
        "bayer, colgate, centrum, omron",
    ),
    "Baby": (
        "baby care",
        "stroller, crib, diapers, pacifier, bib, feeding bottle, playpen, wipes, nursery lamp",
        "pampers, gerber, huggies, medela",
    ),
    "Toys": (
        "toys",
        "puzzle, doll, train set, teddy bear, building blocks, kite, board game, robot, slime, yoyo",
        "lego, hasbro, mattel, playmobil",
    ),
    "Grocery": (
        "grocery, groceries",
        "milk, bread, rice, eggs, butter, pasta, olive oil, cereal, coffee beans, honey",
        "kelloggs, heinz, nestle, danone, barilla",
    ),
    "Food": (
        "food, snacks",
        "quinoa, pizza, noodles, peanuts, chocolate bar, granola, salsa, hummus, protein shake, crackers",
        "oreo, doritos, haribo, lindt",
    ),
    "Kitchen": (
        "kitchenware",
        "blender, toaster, frying pan, kettle, knife, cutting board, mixer, spatula, saucepan, airfryer",
        "kitchenaid, cuisinart, tefal, pyrex, oster",
    ),
    "Home": (
        "home decor",
        "curtains, rug, pillow, candle, mirror, blanket, vacuum cleaner, towels, duvet, picture frame",
        "ikea, dyson, hoover, wayfair",
    ),
    "Furniture": (
        "furniture",
        "sofa, bookcase, armchair, desk, wardrobe, mattress, dresser, coffee table, bunk bed, recliner",
        "sauder, ashley, herman, steelcase",
    ),
    "Garden": (
        "garden, outdoors",
        "hose, shovel, lawn mower, flower pot, seeds, rake, greenhouse, fertilizer, pruner, hammock",
        "fiskars, gardena, scotts, husqvarna",
    ),
    "Sports": (
        "sports, sporting goods",
        "basketball, tennis racket, skateboard, helmet, surfboard, golf clubs, bicycle, cleats, volleyball",
        "wilson, spalding, asics, speedo, umbro",
    ),
    "Fitness": (
        "fitness",
        "yoga mat, dumbbell, treadmill, kettlebell, resistance band, foam roller, jump rope, rowing machine",
        "fitbit, peloton, bowflex, garmin",
    ),
    "Travel": (
        "travel gear",
        "suitcase, backpack, passport holder, tent, sleeping bag, luggage, neck cushion, money pouch, lantern",
        "samsonite, deuter, osprey, tumi",
    ),
    "Automotive": (
        "automotive, car parts",
        "battery, wiper blades, motor oil, brake pads, headlight, dashcam, spark plug, roof rack, windshield",
        "bosch, michelin, castrol, goodyear",
    ),
    "Tools": (
        "tools, hardware",
        "wrench, hammer, drill, screwdriver, ladder, saw, pliers, tape measure, toolbox, sander",
        "dewalt, makita, stanley, ryobi",
    ),
    "Pets": (
        "pet supplies",
        "leash, collar, aquarium, cat litter, dog treats, birdcage, scratching post, hamster wheel, kibble",
        "purina, pedigree, whiskas, chewy",
    ),
}

CATEGORIES: tuple[str, ...] = tuple(_SHELVES)
"""The 24 product categories; neighbours are close in kind."""

CATEGORY_NAMES = {category: _phrases(shelf[0]) for category, shelf in _SHELVES.items()}
PRODUCTS = {category: _phrases(shelf[1]) for category, shelf in _SHELVES.items()}
BRANDS = {category: _phrases(shelf[2]) for category, shelf in _SHELVES.items()}

GENERIC_PRODUCTS = _phrases("gift, bundle, kit, accessory, present, souvenir, sample, gadget, pack, collectible")
"""Products that belong to any category and so tell nothing about a region."""

MODIFIERS = _phrases(
    "red, blue, black, white, green, yellow, pink, purple, brown, navy, silver, gold, beige, teal, ivory, maroon,"
    "small, large, medium, mini, compact, slim, wide, tall, short, oversized, huge, tiny, extra long,"
    "cotton, leather, wooden, steel, plastic, woolen, silk, ceramic, bamboo, linen, rubber, velvet, denim, marble,"
    "wireless, portable, waterproof, foldable, organic, vintage, modern, handmade, durable, lightweight, soft, heavy,"
    "adjustable, rechargeable, premium, luxury, deluxe, basic, refurbished, brand new"
)
PRICE_MODIFIERS = _phrases("cheap, cheapest, affordable, budget, inexpensive, economical, low priced")

LOCATIONS = _phrases(
    "online, near me, nearby, downtown, locally, at the mall, around here, around town, next door, uptown, overseas"
)
