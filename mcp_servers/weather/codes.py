"""The agency's weather codes -> words in Japanese and English.

The week's forecast has codes alone, and an English answer is written from the code in either case. The meaning of a
code is the agency's; a code that is not in the table is read by its first digit, as the agency numbers them.
"""

from __future__ import annotations

_TABLE = """
100 晴れ|sunny
101 晴れ時々くもり|sunny, cloudy at times
102 晴れ一時雨|sunny, brief rain
103 晴れ時々雨|sunny, rain at times
104 晴れ一時雪|sunny, brief snow
105 晴れ時々雪|sunny, snow at times
106 晴れ一時雨か雪|sunny, brief rain or snow
107 晴れ時々雨か雪|sunny, rain or snow at times
108 晴れ一時雨か雷雨|sunny, brief rain or thunderstorms
110 晴れ後時々くもり|sunny, later cloudy at times
111 晴れ後くもり|sunny, later cloudy
112 晴れ後一時雨|sunny, later brief rain
113 晴れ後時々雨|sunny, later rain at times
114 晴れ後雨|sunny, later rain
115 晴れ後一時雪|sunny, later brief snow
116 晴れ後時々雪|sunny, later snow at times
117 晴れ後雪|sunny, later snow
118 晴れ後雨か雪|sunny, later rain or snow
119 晴れ後雨か雷雨|sunny, later rain or thunderstorms
120 晴れ、朝夕一時雨|sunny, brief rain in the morning and evening
121 晴れ、朝の内一時雨|sunny, brief rain in the morning
122 晴れ、夕方一時雨|sunny, brief rain in the evening
123 晴れ、山沿い雷雨|sunny, thunderstorms near the mountains
124 晴れ、山沿い雪|sunny, snow near the mountains
125 晴れ、午後は雷雨|sunny, thunderstorms in the afternoon
126 晴れ、昼頃から雨|sunny, rain from around noon
127 晴れ、夕方から雨|sunny, rain from the evening
128 晴れ、夜は雨|sunny, rain at night
130 朝の内霧後晴れ|morning fog, later sunny
131 晴れ、明け方霧|sunny, fog around dawn
132 晴れ、朝夕くもり|sunny, cloudy in the morning and evening
140 晴れ時々雨で雷を伴う|sunny, rain with thunder at times
160 晴れ一時雪か雨|sunny, brief snow or rain
170 晴れ時々雪か雨|sunny, snow or rain at times
181 晴れ後雪か雨|sunny, later snow or rain
200 くもり|cloudy
201 くもり時々晴れ|cloudy, sunny at times
202 くもり一時雨|cloudy, brief rain
203 くもり時々雨|cloudy, rain at times
204 くもり一時雪|cloudy, brief snow
205 くもり時々雪|cloudy, snow at times
206 くもり一時雨か雪|cloudy, brief rain or snow
207 くもり時々雨か雪|cloudy, rain or snow at times
208 くもり一時雨か雷雨|cloudy, brief rain or thunderstorms
209 霧|fog
210 くもり後時々晴れ|cloudy, later sunny at times
211 くもり後晴れ|cloudy, later sunny
212 くもり後一時雨|cloudy, later brief rain
213 くもり後時々雨|cloudy, later rain at times
214 くもり後雨|cloudy, later rain
215 くもり後一時雪|cloudy, later brief snow
216 くもり後時々雪|cloudy, later snow at times
217 くもり後雪|cloudy, later snow
218 くもり後雨か雪|cloudy, later rain or snow
219 くもり後雨か雷雨|cloudy, later rain or thunderstorms
220 くもり、朝夕一時雨|cloudy, brief rain in the morning and evening
221 くもり、朝の内一時雨|cloudy, brief rain in the morning
222 くもり、夕方一時雨|cloudy, brief rain in the evening
223 くもり、日中時々晴れ|cloudy, sunny at times during the day
224 くもり、昼頃から雨|cloudy, rain from around noon
225 くもり、夕方から雨|cloudy, rain from the evening
226 くもり、夜は雨|cloudy, rain at night
228 くもり、昼頃から雪|cloudy, snow from around noon
229 くもり、夕方から雪|cloudy, snow from the evening
230 くもり、夜は雪|cloudy, snow at night
231 くもり、海上海岸は霧か霧雨|cloudy, fog or drizzle at sea and along the coast
240 くもり時々雨で雷を伴う|cloudy, rain with thunder at times
250 くもり時々雪で雷を伴う|cloudy, snow with thunder at times
260 くもり一時雪か雨|cloudy, brief snow or rain
270 くもり時々雪か雨|cloudy, snow or rain at times
281 くもり後雪か雨|cloudy, later snow or rain
300 雨|rain
301 雨時々晴れ|rain, sunny at times
302 雨時々止む|rain on and off
303 雨時々雪|rain, snow at times
304 雨か雪|rain or snow
306 大雨|heavy rain
308 雨で暴風を伴う|rain with violent wind
309 雨一時雪|rain, brief snow
311 雨後晴れ|rain, later sunny
313 雨後くもり|rain, later cloudy
314 雨後時々雪|rain, later snow at times
315 雨後雪|rain, later snow
316 雨か雪後晴れ|rain or snow, later sunny
317 雨か雪後くもり|rain or snow, later cloudy
320 朝の内雨後晴れ|morning rain, later sunny
321 朝の内雨後くもり|morning rain, later cloudy
322 雨、朝晩一時雪|rain, brief snow in the morning and evening
323 雨、昼頃から晴れ|rain, sunny from around noon
324 雨、夕方から晴れ|rain, clearing in the evening
325 雨、夜は晴れ|rain, clear at night
326 雨、夕方から雪|rain, snow from the evening
327 雨、夜は雪|rain, snow at night
328 雨一時強く降る|rain, heavy for a time
329 雨一時みぞれ|rain, brief sleet
340 雪か雨|snow or rain
350 雨で雷を伴う|rain with thunder
361 雪か雨後晴れ|snow or rain, later sunny
371 雪か雨後くもり|snow or rain, later cloudy
400 雪|snow
401 雪時々晴れ|snow, sunny at times
402 雪時々止む|snow on and off
403 雪時々雨|snow, rain at times
405 大雪|heavy snow
406 風雪強い|snow with strong wind
407 暴風雪|blizzard
409 雪一時雨|snow, brief rain
411 雪後晴れ|snow, later sunny
413 雪後くもり|snow, later cloudy
414 雪後雨|snow, later rain
420 朝の内雪後晴れ|morning snow, later sunny
421 朝の内雪後くもり|morning snow, later cloudy
422 雪、昼頃から雨|snow, rain from around noon
423 雪、夕方から雨|snow, rain from the evening
425 雪一時強く降る|snow, heavy for a time
426 雪後みぞれ|snow, later sleet
427 雪一時みぞれ|snow, brief sleet
450 雪で雷を伴う|snow with thunder
"""

WEATHER_CODES: dict[str, tuple[str, str]] = {
    line[:3]: (line[4:].partition("|")[0], line.partition("|")[2]) for line in _TABLE.strip().splitlines()
}


def describe(code: str) -> tuple[str, str] | None:
    """What a weather code says, in Japanese and in English; None when it says nothing.

    Args:
        code: three digits as in the agency's ``weatherCodes``; an unknown one is read by its first digit.
    """
    return WEATHER_CODES.get(code) or WEATHER_CODES.get(f"{code[:1]}00")
