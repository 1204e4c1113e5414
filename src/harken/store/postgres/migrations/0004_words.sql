-- The words of a text: letters and digits in small letters, without marks above and below letters. What a letter is does
-- not depend on the locale of the database, of which one without any knows the letters of English alone.
CREATE OR REPLACE FUNCTION words(TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN octet_length($1) = length($1) THEN regexp_replace($1, '[^0-9A-Za-z]+', ' ', 'g') ELSE translate(
        regexp_replace(
            regexp_replace(normalize($1, NFKD), '[\u0300-\u036f]+', '', 'g'),
            '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
            '\u2000-\u206f\u20a0-\u20cf\u2190-\u245f\u249c-\u24e9\u2500-\u2775\u2794-\u2bff\u2e00-\u2e7f\u3000-\u3004'
            '\u3008-\u3020\u3030\u3036\u3037\u303d-\u303f\u30a0\u30fb\ufe10-\ufe6f\uff00-\uff0f\ufff0-\uffff'
            '\U0001f000-\U0001faff]+', ' ', 'g'),
        'ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩЂЄЅІЈЉЊЋЏАБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯѢѲѴҐҒҖҚҢҮҰҲҺӘӨԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖÆÐØÞĐĦŁŊŒŦƏẞ',
        'αβγδεζηθικλμνξοπρστυφχψωђєѕіјљњћџабвгдежзиклмнопрстуфхцчшщъыьэюяѣѳѵґғҗқңүұҳһәөաբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆæðøþđħłŋœŧəß') END
$$;

-- What was found by its words so far is found by all of them when the index is made anew.
TRUNCATE messages_text;
UPDATE progress SET value = 0 WHERE name = 'indexed';
